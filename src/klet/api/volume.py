"""Volumes of a pod spec (core/v1). The sources of retired in-tree plugins are in `volume_intree`."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int32, Int64, required
from klet.api.claim import PersistentVolumeClaimTemplate
from klet.api.container import ObjectFieldSelector, ResourceFieldSelector
from klet.api.meta import LabelSelector
from klet.api.quantity import Quantity
from klet.api.references import LocalObjectReference
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


class KeyToPath(ApiObject, frozen=True, kw_only=True):
    key: str = required(str)
    path: str = required(str)
    mode: Int32 | None = None


class DownwardAPIVolumeFile(ApiObject, frozen=True, kw_only=True):
    path: str = required(str)
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: Int32 | None = None


class ConfigMapVolumeSource(ApiObject, frozen=True, kw_only=True):
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None
    name: str = ""


class SecretVolumeSource(ApiObject, frozen=True, kw_only=True):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class DownwardAPIVolumeSource(ApiObject, frozen=True, kw_only=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: Int32 | None = None


class EmptyDirVolumeSource(ApiObject, frozen=True, kw_only=True):
    """A scratch directory that lives as long as the pod."""

    medium: str = ""
    size_limit: Quantity | None = None


class HostPathVolumeSource(ApiObject, frozen=True, kw_only=True):
    path: str = required(str)
    type: str | None = None


class PersistentVolumeClaimVolumeSource(ApiObject, frozen=True, kw_only=True):
    claim_name: str = required(str)
    read_only: bool = False


class NFSVolumeSource(ApiObject, frozen=True, kw_only=True):
    server: str = required(str)
    path: str = required(str)
    read_only: bool = False


class CSIVolumeSource(ApiObject, frozen=True, kw_only=True):
    driver: str = required(str)
    read_only: bool = False
    fs_type: str | None = None
    volume_attributes: Mapping[str, str] = {}
    node_publish_secret_ref: LocalObjectReference | None = None


class EphemeralVolumeSource(ApiObject, frozen=True, kw_only=True):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class ImageVolumeSource(ApiObject, frozen=True, kw_only=True):
    reference: str = ""
    pull_policy: str = ""


class SecretProjection(ApiObject, frozen=True, kw_only=True):
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None
    name: str = ""


class ConfigMapProjection(ApiObject, frozen=True, kw_only=True):
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None
    name: str = ""


class DownwardAPIProjection(ApiObject, frozen=True, kw_only=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()


class ServiceAccountTokenProjection(ApiObject, frozen=True, kw_only=True):
    audience: str = ""
    expiration_seconds: Int64 | None = None
    path: str = required(str)


class ClusterTrustBundleProjection(ApiObject, frozen=True, kw_only=True):
    name: str | None = None
    signer_name: str | None = None
    label_selector: LabelSelector | None = None
    optional: bool | None = None
    path: str = required(str)


class PodCertificateProjection(ApiObject, frozen=True, kw_only=True):
    signer_name: str = required(str)
    key_type: str = required(str)
    max_expiration_seconds: Int32 | None = None
    credential_bundle_path: str = ""
    key_path: str = ""
    certificate_chain_path: str = ""
    user_annotations: Mapping[str, str] = {}


class VolumeProjection(ApiObject, frozen=True, kw_only=True):
    secret: SecretProjection | None = None
    downward_api: DownwardAPIProjection | None = field(name="downwardAPI", default=None)
    config_map: ConfigMapProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(ApiObject, frozen=True, kw_only=True):
    """Several sources in one directory."""

    sources: tuple[VolumeProjection, ...] = ()
    default_mode: Int32 | None = None


class Volume(ApiObject, frozen=True, kw_only=True):
    """One volume of a pod: a name and exactly one source."""

    name: str = required(str)
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    cephfs: CephFSVolumeSource | None = None
    cinder: CinderVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = field(name="downwardAPI", default=None)
    empty_dir: EmptyDirVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    fc: FCVolumeSource | None = None
    flex_volume: FlexVolumeSource | None = None
    flocker: FlockerVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    git_repo: GitRepoVolumeSource | None = None
    glusterfs: GlusterfsVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    image: ImageVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    photon_persistent_disk: PhotonPersistentDiskVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    quobyte: QuobyteVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    scale_io: ScaleIOVolumeSource | None = field(name="scaleIO", default=None)
    secret: SecretVolumeSource | None = None
    storageos: StorageOSVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None


def secret_references(volume: Volume) -> tuple[LocalObjectReference, ...]:
    """Return the secrets that the in-tree drivers of a volume are given by reference."""
    sources = (
        volume.cephfs,
        volume.cinder,
        volume.flex_volume,
        volume.rbd,
        volume.scale_io,
        volume.iscsi,
        volume.storageos,
    )
    return tuple(source.secret_ref for source in sources if source is not None and source.secret_ref is not None)
