"""Rules for the volumes of a pod: names, exactly one source, and the sources that nodes serve themselves."""

from collections.abc import Callable, Mapping
from typing import Final

from klet.api.meta import ObjectMeta
from klet.api.validation import formats
from klet.api.validation import volumes_intree as intree
from klet.api.validation.claims import validate_claim_template
from klet.api.validation.errors import (
    FieldError,
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    too_long,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.options import PodValidationOptions
from klet.api.validation.projections import (
    validate_downward_files,
    validate_items,
    validate_mode,
    validate_projected,
)
from klet.api.volume import (
    ConfigMapVolumeSource,
    CSIVolumeSource,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    HostPathVolumeSource,
    ImageVolumeSource,
    NFSVolumeSource,
    PersistentVolumeClaimVolumeSource,
    SecretVolumeSource,
    Volume,
)

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
CSI_DRIVER_LIMIT: Final = 63
_HOST_PATH_TYPES: Final = (
    *("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"),
)


def validate_volumes(
    volumes: tuple[Volume, ...], meta: ObjectMeta, path: FieldPath, options: PodValidationOptions
) -> tuple[dict[str, Volume], tuple[FieldError, ...]]:
    """Return the volumes that containers may mount by name, and the errors of all."""
    usable: dict[str, Volume] = {}
    errors: list[FieldError] = []
    created = {f"{meta.name}-{volume.name}" for volume in volumes if volume.ephemeral is not None and meta.name}
    for position, volume in enumerate(volumes):
        here = path.at(position)
        found = list(_volume(volume, meta, here, options))
        if volume.name in usable:
            found.append(duplicate(here.child("name"), volume.name))
        if not found:
            usable[volume.name] = volume
        errors += found
        claim = volume.persistent_volume_claim
        if claim is not None and claim.claim_name in created:
            message = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(here.child("persistentVolumeClaim", "claimName"), claim.claim_name, message))
    return usable, tuple(errors)


def validate_pull_policy(policy: str, path: FieldPath) -> FieldErrors:
    if not policy:
        yield required(path)
    elif policy not in PULL_POLICIES:
        yield not_supported(path, policy, PULL_POLICIES)


def _volume(volume: Volume, meta: ObjectMeta, path: FieldPath, options: PodValidationOptions) -> FieldErrors:
    if options.resource_is_pod and volume.image is not None and not volume.image.reference:
        yield required(path.child("image", "reference"))
    yield from _sources(volume, path)
    if volume.iscsi is not None and volume.iscsi.initiator_name is not None:
        yield from intree.validate_iscsi_volume_name(volume.name, volume.iscsi, path.child("name"))
    if volume.ephemeral is not None and meta.name and volume.name:
        claim_name = f"{meta.name}-{volume.name}"
        messages = (f'PVC name "{claim_name}": {message}' for message in formats.dns_subdomain(claim_name))
        yield from invalid_each(path.child("name"), volume.name, messages)
    if not volume.name:
        yield required(path.child("name"))
    else:
        yield from invalid_each(path.child("name"), volume.name, formats.dns_label(volume.name))


def _sources(volume: Volume, path: FieldPath) -> FieldErrors:
    count = 0
    for attribute, wire_name, rule in _SOURCES:
        source = getattr(volume, attribute)
        if source is None:
            continue
        count += 1
        if count == 1:
            yield from rule(source, path.child(_CHECKED_AS.get(wire_name, wire_name)))
        else:
            refused = path.child(_REFUSED_AS.get(wire_name, wire_name))
            yield forbidden(refused, "may not specify more than 1 volume type")
    if count == 0:
        yield required(path, "must specify a volume type")


def _empty_dir(source: EmptyDirVolumeSource, path: FieldPath) -> FieldErrors:
    if source.size_limit is not None and source.size_limit.sign < 0:
        yield forbidden(path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity")


def _host_path(source: HostPathVolumeSource, path: FieldPath) -> FieldErrors:
    if not source.path:
        yield required(path.child("path"))
        return
    if formats.has_backsteps(source.path):
        yield invalid(path.child("path"), source.path, "must not contain '..'")
    if source.type is not None and source.type not in _HOST_PATH_TYPES:
        yield not_supported(path.child("type"), source.type, _HOST_PATH_TYPES)


def _secret(source: SecretVolumeSource, path: FieldPath) -> FieldErrors:
    if not source.secret_name:
        yield required(path.child("secretName"))
    yield from validate_mode(source.default_mode, path.child("defaultMode"))
    yield from validate_items(source.items, path.child("items"))


def _config_map(source: ConfigMapVolumeSource, path: FieldPath) -> FieldErrors:
    if not source.name:
        yield required(path.child("name"))
    yield from validate_mode(source.default_mode, path.child("defaultMode"))
    yield from validate_items(source.items, path.child("items"))


def _downward_api(source: DownwardAPIVolumeSource, path: FieldPath) -> FieldErrors:
    yield from validate_mode(source.default_mode, path.child("defaultMode"))
    yield from validate_downward_files(source.items, path)


def _claim(source: PersistentVolumeClaimVolumeSource, path: FieldPath) -> FieldErrors:
    if not source.claim_name:
        yield required(path.child("claimName"))


def _nfs(source: NFSVolumeSource, path: FieldPath) -> FieldErrors:
    if not source.server:
        yield required(path.child("server"))
    if not source.path:
        yield required(path.child("path"))
    if not source.path.startswith("/"):
        yield invalid(path.child("path"), source.path, "must be an absolute path")


def _csi(source: CSIVolumeSource, path: FieldPath) -> FieldErrors:
    driver = path.child("driver")
    if not source.driver:
        yield required(driver)
    if len(source.driver) > CSI_DRIVER_LIMIT:
        yield too_long(driver, CSI_DRIVER_LIMIT)
    yield from invalid_each(driver, source.driver, formats.dns_subdomain(source.driver.lower()))
    secret = source.node_publish_secret_ref
    if secret is None:
        return
    if not secret.name:
        yield required(path.child("nodePublishSecretRef", "name"))
    else:
        yield from invalid_each(path.child("name"), secret.name, formats.dns_subdomain(secret.name))


def _ephemeral(source: EphemeralVolumeSource, path: FieldPath) -> FieldErrors:
    here = path.child("volumeClaimTemplate")
    if source.volume_claim_template is None:
        yield required(here)
    else:
        yield from validate_claim_template(source.volume_claim_template, here)


def _image(source: ImageVolumeSource, path: FieldPath) -> FieldErrors:
    yield from validate_pull_policy(source.pull_policy, path.child("pullPolicy"))


# Attribute, wire name and rule of every source, in the order in which the API server looks at them.
_SOURCES: Final[tuple[tuple[str, str, Callable[..., FieldErrors]], ...]] = (
    ("empty_dir", "emptyDir", _empty_dir),
    ("host_path", "hostPath", _host_path),
    ("git_repo", "gitRepo", intree.git_repo),
    ("gce_persistent_disk", "gcePersistentDisk", intree.gce_persistent_disk),
    ("aws_elastic_block_store", "awsElasticBlockStore", intree.aws_elastic_block_store),
    ("secret", "secret", _secret),
    ("nfs", "nfs", _nfs),
    ("iscsi", "iscsi", intree.iscsi),
    ("glusterfs", "glusterfs", intree.glusterfs),
    ("flocker", "flocker", intree.flocker),
    ("persistent_volume_claim", "persistentVolumeClaim", _claim),
    ("rbd", "rbd", intree.rbd),
    ("cinder", "cinder", intree.cinder),
    ("cephfs", "cephfs", intree.cephfs),
    ("quobyte", "quobyte", intree.quobyte),
    ("downward_api", "downwardAPI", _downward_api),
    ("fc", "fc", intree.fc),
    ("flex_volume", "flexVolume", intree.flex_volume),
    ("config_map", "configMap", _config_map),
    ("azure_file", "azureFile", intree.azure_file),
    ("vsphere_volume", "vsphereVolume", intree.vsphere_volume),
    ("photon_persistent_disk", "photonPersistentDisk", intree.photon_persistent_disk),
    ("portworx_volume", "portworxVolume", intree.portworx_volume),
    ("azure_disk", "azureDisk", intree.azure_disk),
    ("storageos", "storageos", intree.storageos),
    ("projected", "projected", validate_projected),
    ("scale_io", "scaleIO", intree.scale_io),
    ("csi", "csi", _csi),
    ("ephemeral", "ephemeral", _ephemeral),
    ("image", "image", _image),
)
# Paths of messages that differ from the wire names; clients see them, so they stay.
_CHECKED_AS: Final[Mapping[str, str]] = {"gcePersistentDisk": "persistentDisk"}
_REFUSED_AS: Final[Mapping[str, str]] = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
