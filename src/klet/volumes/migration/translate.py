"""Turns in-tree volumes into those of CSI drivers (upstream: csi-translation-lib). Pure."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from klet.api.meta import ObjectMeta
from klet.api.references import SecretReference
from klet.api.storage import CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec
from klet.api.volume import Volume
from klet.api.volume_intree import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    CinderPersistentVolumeSource,
    CinderVolumeSource,
    GCEPersistentDiskVolumeSource,
    PortworxVolumeSource,
    VsphereVirtualDiskVolumeSource,
)
from klet.volumes.errors import VolumeSetupError
from klet.volumes.migration.handles import azure_file_handle, ebs_handle, gce_handle
from klet.volumes.migration.topology import translate_zone_and_region, translate_zones, zones_of
from klet.volumes.spec import VolumeSpec

EBS: Final = "ebs.csi.aws.com"
GCE_PD: Final = "pd.csi.storage.gke.io"
AZURE_DISK: Final = "disk.csi.azure.com"
AZURE_FILE: Final = "file.csi.azure.com"
CINDER: Final = "cinder.csi.openstack.org"
VSPHERE: Final = "csi.vsphere.vmware.com"
PORTWORX: Final = "pxd.portworx.com"
RESOURCE_GROUP: Final = "kubernetes.io/azure-file-resource-group"
PORTWORX_NAME: Final = "openstorage.io/auth-secret-name"
PORTWORX_NAMESPACE: Final = "openstorage.io/auth-secret-namespace"
_MANAGED: Final = "Managed"
_DEFAULT_NAMESPACE: Final = "default"
_ONE_WRITER: Final = ("ReadWriteOnce",)
_READERS: Final = ("ReadOnlyMany",)
_WRITERS: Final = ("ReadWriteMany",)
_FILESYSTEM: Final = "Filesystem"


def translate_to_csi(spec: VolumeSpec, namespace: str) -> VolumeSpec:
    """Return an in-tree volume as that of its driver, and any other as it is. `namespace` is the pod's."""
    try:
        if spec.persistent is not None:
            translated = _translate_persistent(spec.persistent)
        else:
            translated = _translate_inline(spec.volume, namespace)
    except VolumeSetupError as error:
        raise VolumeSetupError(f"failed to translate in-tree pv to CSI: {error}") from error
    if translated is None:
        return spec
    return replace(spec, persistent=translated, is_migrated=True)


def _translate_persistent(volume: PersistentVolume) -> PersistentVolume | None:
    spec = volume.spec
    if spec.aws_elastic_block_store is not None:
        moved = translate_zones(volume, f"topology.{EBS}/zone")
        return _with(moved, _ebs(spec.aws_elastic_block_store), aws_elastic_block_store=None)
    if spec.gce_persistent_disk is not None:
        moved = translate_zones(volume, "topology.gke.io/zone")
        disk = _gce(spec.gce_persistent_disk, zones_of(volume.metadata.labels))
        return _with(moved, disk, gce_persistent_disk=None, access_modes=_gce_modes(spec.access_modes))
    if spec.azure_disk is not None:
        return _with(volume, _azure_disk(spec.azure_disk), azure_disk=None)
    if spec.azure_file is not None:
        return _with(volume, _azure_file(volume), azure_file=None)
    if spec.cinder is not None:
        moved = translate_zones(volume, "topology.cinder.csi.openstack.org/zone")
        return _with(moved, _cinder(spec.cinder), cinder=None)
    if spec.vsphere_volume is not None:
        moved = translate_zone_and_region(volume, "topology.csi.vmware.com/zone", "topology.csi.vmware.com/region")
        return _with(moved, _vsphere(spec.vsphere_volume), vsphere_volume=None)
    if spec.portworx_volume is not None:
        return _with(volume, _portworx(spec.portworx_volume, volume.metadata.annotations), portworx_volume=None)
    return None


def _translate_inline(volume: Volume, namespace: str) -> PersistentVolume | None:
    if volume.aws_elastic_block_store is not None:
        ebs = _ebs(volume.aws_elastic_block_store)
        return _inline(f"{EBS}-{ebs.volume_handle}", ebs, _ONE_WRITER)
    if volume.gce_persistent_disk is not None:
        disk = volume.gce_persistent_disk
        return _inline(f"{GCE_PD}-{disk.pd_name}", _gce(disk, ("",)), _READERS if disk.read_only else _ONE_WRITER)
    if volume.azure_disk is not None:
        return _inline(volume.azure_disk.disk_uri, _azure_disk(volume.azure_disk, is_inline=True), _ONE_WRITER)
    if volume.azure_file is not None:
        file, space = volume.azure_file, namespace or _DEFAULT_NAMESPACE
        handle = azure_file_handle(secret=file.secret_name, share=file.share_name, name=volume.name, namespace=space)
        share = _azure_share(handle, file.share_name, SecretReference(name=file.secret_name, namespace=space))
        return _inline(handle, replace(share, read_only=file.read_only), _WRITERS)
    if volume.cinder is not None:
        return _inline(f"{CINDER}-{volume.cinder.volume_id}", _cinder(volume.cinder), _ONE_WRITER)
    if volume.vsphere_volume is not None:
        path = volume.vsphere_volume.volume_path
        return _inline(f"{VSPHERE}-{path}", _vsphere(volume.vsphere_volume), _ONE_WRITER)
    if volume.portworx_volume is not None:
        portworx = volume.portworx_volume
        modes = _READERS if portworx.read_only else _ONE_WRITER
        return _inline(f"{PORTWORX}-{portworx.volume_id}", _portworx(portworx, {}), modes)
    return None


def _with(volume: PersistentVolume, source: CSIPersistentVolumeSource, **changes: object) -> PersistentVolume:
    return replace(volume, spec=replace(volume.spec, csi=source, **changes))


def _inline(name: str, source: CSIPersistentVolumeSource, modes: tuple[str, ...]) -> PersistentVolume:
    """Return a volume of its own for an inline one. The name is the same for all pods that use the same."""
    spec = PersistentVolumeSpec(csi=source, access_modes=modes, volume_mode=_FILESYSTEM)
    return PersistentVolume(metadata=ObjectMeta(name=name), spec=spec)


def _ebs(source: AWSElasticBlockStoreVolumeSource) -> CSIPersistentVolumeSource:
    return CSIPersistentVolumeSource(
        driver=EBS,
        volume_handle=ebs_handle(source.volume_id),
        read_only=source.read_only,
        fs_type=source.fs_type,
        volume_attributes={"partition": str(source.partition)},
    )


def _gce(source: GCEPersistentDiskVolumeSource, zones: list[str] | tuple[str, ...]) -> CSIPersistentVolumeSource:
    return CSIPersistentVolumeSource(
        driver=GCE_PD,
        volume_handle=gce_handle(source.pd_name, zones),
        read_only=source.read_only,
        fs_type=source.fs_type,
        volume_attributes={"partition": str(source.partition) if source.partition else ""},
    )


def _gce_modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the access modes that the driver can serve: in-tree ones were never enforced."""
    if not modes:
        return modes
    return _READERS if set(modes) <= {"ReadOnlyMany", "ReadWriteOncePod"} and "ReadOnlyMany" in modes else _ONE_WRITER


def _azure_disk(source: AzureDiskVolumeSource, *, is_inline: bool = False) -> CSIPersistentVolumeSource:
    if source.kind is not None and source.kind.lower() != _MANAGED.lower():
        raise VolumeSetupError(f"kind({source.kind[:256]}) is not supported in csi migration")
    attributes = {"kind": _MANAGED}
    if source.caching_mode or (source.caching_mode is not None and not is_inline):
        attributes["cachingMode"] = source.caching_mode
    if source.fs_type is not None:
        attributes["fsType"] = source.fs_type
    return CSIPersistentVolumeSource(
        driver=AZURE_DISK,
        volume_handle=source.disk_uri,
        read_only=bool(source.read_only),
        fs_type=source.fs_type or "",
        volume_attributes=attributes,
    )


def _azure_file(volume: PersistentVolume) -> CSIPersistentVolumeSource:
    source, claim = volume.spec.azure_file, volume.spec.claim_ref
    assert source is not None  # by the caller
    namespace = source.secret_namespace
    if namespace is None:
        namespace = claim.namespace if claim is not None else ""
    if not namespace:
        raise VolumeSetupError("could not find a secret namespace in PersistentVolumeSource or ClaimRef")
    handle = azure_file_handle(
        secret=source.secret_name,
        share=source.share_name,
        name=volume.metadata.name,
        namespace=namespace,
        resource_group=volume.metadata.annotations.get(RESOURCE_GROUP, ""),
    )
    share = _azure_share(handle, source.share_name, SecretReference(name=source.secret_name, namespace=namespace))
    return replace(share, read_only=source.read_only)


def _azure_share(handle: str, share: str, secret: SecretReference) -> CSIPersistentVolumeSource:
    return CSIPersistentVolumeSource(
        driver=AZURE_FILE,
        volume_handle=handle,
        volume_attributes={"sharename": share},
        node_stage_secret_ref=secret,
    )


def _cinder(source: CinderVolumeSource | CinderPersistentVolumeSource) -> CSIPersistentVolumeSource:
    return CSIPersistentVolumeSource(
        driver=CINDER, volume_handle=source.volume_id, read_only=source.read_only, fs_type=source.fs_type
    )


def _vsphere(source: VsphereVirtualDiskVolumeSource) -> CSIPersistentVolumeSource:
    policy = source.storage_policy_name
    return CSIPersistentVolumeSource(
        driver=VSPHERE,
        volume_handle=source.volume_path,
        fs_type=source.fs_type,
        volume_attributes={"storagepolicyname": policy} if policy else {},
    )


def _portworx(source: PortworxVolumeSource, annotations: Mapping[str, str]) -> CSIPersistentVolumeSource:
    """Return the volume; whether it is read-only its driver does not learn, as upstream."""
    secret = None
    if PORTWORX_NAME in annotations and PORTWORX_NAMESPACE in annotations:
        secret = SecretReference(name=annotations[PORTWORX_NAME], namespace=annotations[PORTWORX_NAMESPACE])
    return CSIPersistentVolumeSource(
        driver=PORTWORX,
        volume_handle=source.volume_id,
        fs_type=source.fs_type,
        controller_publish_secret_ref=secret,
        node_stage_secret_ref=secret,
        node_publish_secret_ref=secret,
        controller_expand_secret_ref=secret,
        node_expand_secret_ref=secret,
    )
