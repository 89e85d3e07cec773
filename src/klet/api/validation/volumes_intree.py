"""Rules for volume sources of network storage that once had a plugin inside the kubelet."""

import re
from collections.abc import Iterable
from typing import Final

from klet.api.validation import formats
from klet.api.validation.errors import FieldErrors, invalid, invalid_each, not_supported, required
from klet.api.validation.fieldpath import FieldPath
from klet.api.volume_intree import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CephFSVolumeSource,
    CinderVolumeSource,
    FCVolumeSource,
    FlexVolumeSource,
    FlockerVolumeSource,
    GCEPersistentDiskVolumeSource,
    GitRepoVolumeSource,
    GlusterfsVolumeSource,
    ISCSIVolumeSource,
    PhotonPersistentDiskVolumeSource,
    PortworxVolumeSource,
    QuobyteVolumeSource,
    RBDVolumeSource,
    ScaleIOVolumeSource,
    StorageOSVolumeSource,
    VsphereVirtualDiskVolumeSource,
)

_IQN: Final = re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)$", re.ASCII)
_EUI: Final = re.compile(r"eui.[A-Za-z0-9]{16}")
_NAA: Final = re.compile(r"naa.[A-Za-z0-9]{32}")
_CACHING_MODES: Final = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS: Final = ("Dedicated", "Managed", "Shared")
_MANAGED_DISK: Final = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_DISK: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_HOST_PORTS: Final = "must be a host:port pair or multiple pairs separated by commas"
_TENANT_LIMIT: Final = 64
_ISCSI_NAME_LIMIT: Final = 64


def git_repo(source: GitRepoVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("repository", source.repository))
    yield from invalid_each(path.child("directory"), source.directory, formats.local_path(source.directory))


def gce_persistent_disk(source: GCEPersistentDiskVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("pdName", source.pd_name))
    yield from _partition(source.partition, path)


def aws_elastic_block_store(source: AWSElasticBlockStoreVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("volumeID", source.volume_id))
    yield from _partition(source.partition, path)


def iscsi(source: ISCSIVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("targetPortal", source.target_portal), ("iqn", source.iqn))
    if source.iqn:
        yield from _iscsi_name(source.iqn, path.child("iqn"))
    if not 0 <= source.lun <= 255:
        yield invalid(path.child("lun"), source.lun, formats.between(0, 255))
    if (source.chap_auth_discovery or source.chap_auth_session) and source.secret_ref is None:
        yield required(path.child("secretRef"))
    if source.initiator_name is not None:
        yield from _iscsi_name(source.initiator_name, path.child("initiatorname"))


def validate_iscsi_volume_name(name: str, source: ISCSIVolumeSource, path: FieldPath) -> FieldErrors:
    """Check the length of the interface name that the kubelet makes of the two."""
    if len(f"{name}:{source.target_portal}") > _ISCSI_NAME_LIMIT:
        message = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
            "if iscsi.initiatorName is specified."
        )
        yield invalid(path, name, message)


def glusterfs(source: GlusterfsVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("endpoints", source.endpoints), ("path", source.path))


def flocker(source: FlockerVolumeSource, path: FieldPath) -> FieldErrors:
    if not source.dataset_name and not source.dataset_uuid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if source.dataset_name and source.dataset_uuid:
        yield invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in source.dataset_name:
        yield invalid(path.child("datasetName"), source.dataset_name, "must not contain '/'")


def rbd(source: RBDVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("monitors", source.monitors), ("image", source.image))


def cinder(source: CinderVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("volumeID", source.volume_id))
    if source.secret_ref is not None:
        yield from _required(path.child("secretRef"), ("name", source.secret_ref.name))


def cephfs(source: CephFSVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("monitors", source.monitors))


def quobyte(source: QuobyteVolumeSource, path: FieldPath) -> FieldErrors:
    if not source.registry:
        yield required(path.child("registry"), _HOST_PORTS)
    elif len(source.tenant) > _TENANT_LIMIT:
        yield required(path.child("tenant"), "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in source.registry.split(","):
            if not _is_host_port(pair):
                yield invalid(path.child("registry"), source.registry, _HOST_PORTS)
    yield from _required(path, ("volume", source.volume))


def fc(source: FCVolumeSource, path: FieldPath) -> FieldErrors:
    if not source.target_wwns and not source.wwids:
        yield required(path.child("targetWWNs"), "must specify either targetWWNs or wwids, but not both")
    if source.target_wwns and source.wwids:
        message = "targetWWNs and wwids can not be specified simultaneously"
        yield invalid(path.child("targetWWNs"), source.target_wwns, message)
    if source.target_wwns:
        if source.lun is None:
            yield required(path.child("lun"), "lun is required if targetWWNs is specified")
        elif not 0 <= source.lun <= 255:
            yield invalid(path.child("lun"), source.lun, formats.between(0, 255))


def flex_volume(source: FlexVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("driver", source.driver))
    for key in source.options:
        owner = "." + key.partition("/")[0].lower()
        if owner.endswith((".kubernetes.io", ".k8s.io")):
            message = "kubernetes.io and k8s.io namespaces are reserved"
            yield invalid(path.child("options").key(key), key, message)


def azure_file(source: AzureFileVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("secretName", source.secret_name), ("shareName", source.share_name))


def azure_disk(source: AzureDiskVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("diskName", source.disk_name), ("diskURI", source.disk_uri))
    if source.caching_mode is not None and source.caching_mode not in _CACHING_MODES:
        yield not_supported(path.child("cachingMode"), source.caching_mode, _CACHING_MODES)
    if source.kind is not None and source.kind not in _DISK_KINDS:
        yield not_supported(path.child("kind"), source.kind, _DISK_KINDS)
    if source.kind == "Managed":
        if not source.disk_uri.startswith("/subscriptions/"):
            yield not_supported(path.child("diskURI"), source.disk_uri, (_MANAGED_DISK,))
    elif source.kind is not None and not source.disk_uri.startswith("https://"):
        yield not_supported(path.child("diskURI"), source.disk_uri, (_BLOB_DISK,))


def vsphere_volume(source: VsphereVirtualDiskVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("volumePath", source.volume_path))


def photon_persistent_disk(source: PhotonPersistentDiskVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("pdID", source.pd_id))


def portworx_volume(source: PortworxVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("volumeID", source.volume_id))


def scale_io(source: ScaleIOVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(
        path, ("gateway", source.gateway), ("system", source.system), ("volumeName", source.volume_name)
    )


def storageos(source: StorageOSVolumeSource, path: FieldPath) -> FieldErrors:
    yield from _required(path, ("volumeName", source.volume_name))
    for wire_name, name in (("volumeName", source.volume_name), ("volumeNamespace", source.volume_namespace)):
        if name:
            yield from invalid_each(path.child(wire_name), name, formats.dns_label(name))
    if source.secret_ref is not None:
        yield from _required(path.child("secretRef"), ("name", source.secret_ref.name))


def _required(path: FieldPath, *fields: tuple[str, str | Iterable[str]]) -> FieldErrors:
    for wire_name, value in fields:
        if not value:
            yield required(path.child(wire_name))


def _partition(partition: int, path: FieldPath) -> FieldErrors:
    # Zero is let through although the message says one.
    if not 0 <= partition <= 255:
        yield invalid(path.child("partition"), partition, formats.between(1, 255))


def _iscsi_name(name: str, path: FieldPath) -> FieldErrors:
    patterns = {"iqn": _IQN.search, "eui": _EUI.fullmatch, "naa": _NAA.fullmatch}
    matches = patterns.get(name[:3])
    if matches is None:
        yield invalid(path, name, "must be valid format starting with iqn, eui, or naa")
    elif not matches(name):
        yield invalid(path, name, "must be valid format")


def _is_host_port(pair: str) -> bool:
    host, colon, _ = pair.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    return bool(colon) and (bracketed or ":" not in host)
