"""Persistent volumes (core/v1); CSI drivers, attachments and storage classes (storage.k8s.io/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int32, Int64, required
from klet.api.meta import ObjectMeta
from klet.api.placement import NodeSelector, TopologySelectorTerm
from klet.api.quantity import Quantity
from klet.api.references import ObjectReference, SecretReference
from klet.api.times import Time
from klet.api.volume import HostPathVolumeSource, NFSVolumeSource
from klet.api.volume_intree import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFilePersistentVolumeSource,
    CephFSPersistentVolumeSource,
    CinderPersistentVolumeSource,
    FCVolumeSource,
    FlexPersistentVolumeSource,
    FlockerVolumeSource,
    GCEPersistentDiskVolumeSource,
    GlusterfsPersistentVolumeSource,
    ISCSIPersistentVolumeSource,
    PhotonPersistentDiskVolumeSource,
    PortworxVolumeSource,
    QuobyteVolumeSource,
    RBDPersistentVolumeSource,
    ScaleIOPersistentVolumeSource,
    StorageOSPersistentVolumeSource,
    VsphereVirtualDiskVolumeSource,
)


class LocalVolumeSource(ApiObject, frozen=True, kw_only=True):
    path: str = required(str)
    fs_type: str | None = None


class CSIPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    driver: str = required(str)
    volume_handle: str = required(str)
    read_only: bool = False
    fs_type: str = ""
    volume_attributes: Mapping[str, str] = {}
    controller_publish_secret_ref: SecretReference | None = None
    node_stage_secret_ref: SecretReference | None = None
    node_publish_secret_ref: SecretReference | None = None
    controller_expand_secret_ref: SecretReference | None = None
    node_expand_secret_ref: SecretReference | None = None


class VolumeNodeAffinity(ApiObject, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(ApiObject, frozen=True, kw_only=True):
    """Exactly one volume source, and how it may be used."""

    capacity: Mapping[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    mount_options: tuple[str, ...] = ()
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    azure_file: AzureFilePersistentVolumeSource | None = None
    cephfs: CephFSPersistentVolumeSource | None = None
    cinder: CinderPersistentVolumeSource | None = None
    csi: CSIPersistentVolumeSource | None = None
    fc: FCVolumeSource | None = None
    flex_volume: FlexPersistentVolumeSource | None = None
    flocker: FlockerVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    glusterfs: GlusterfsPersistentVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    iscsi: ISCSIPersistentVolumeSource | None = None
    local: LocalVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    photon_persistent_disk: PhotonPersistentDiskVolumeSource | None = None
    portworx_volume: PortworxVolumeSource | None = None
    quobyte: QuobyteVolumeSource | None = None
    rbd: RBDPersistentVolumeSource | None = None
    scale_io: ScaleIOPersistentVolumeSource | None = field(name="scaleIO", default=None)
    storageos: StorageOSPersistentVolumeSource | None = None
    vsphere_volume: VsphereVirtualDiskVolumeSource | None = None


class PersistentVolumeStatus(ApiObject, frozen=True, kw_only=True):
    phase: str = ""
    message: str = ""
    reason: str = ""
    last_phase_transition_time: Time | None = None


class PersistentVolume(ApiObject, frozen=True, kw_only=True):
    """A piece of storage."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class StorageClass(ApiObject, frozen=True, kw_only=True):
    """How to provision a kind of storage."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = required(str)
    parameters: Mapping[str, str] = {}
    reclaim_policy: str | None = None
    mount_options: tuple[str, ...] = ()
    allow_volume_expansion: bool | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class TokenRequest(ApiObject, frozen=True, kw_only=True):
    audience: str = required(str)
    expiration_seconds: Int64 | None = None


class CSIDriverSpec(ApiObject, frozen=True, kw_only=True):
    attach_required: bool | None = None
    pod_info_on_mount: bool | None = None
    volume_lifecycle_modes: tuple[str, ...] = ()
    storage_capacity: bool | None = None
    fs_group_policy: str | None = None
    token_requests: tuple[TokenRequest, ...] = ()
    requires_republish: bool | None = None
    se_linux_mount: bool | None = None
    node_allocatable_update_period_seconds: Int64 | None = None
    service_account_token_in_secrets: bool | None = None


class CSIDriver(ApiObject, frozen=True, kw_only=True):
    """What a CSI driver can do."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class VolumeNodeResources(ApiObject, frozen=True, kw_only=True):
    count: Int32 | None = None


class CSINodeDriver(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    node_id: str = required(str, name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiObject, frozen=True, kw_only=True):
    drivers: tuple[CSINodeDriver, ...] = required(tuple)


class CSINode(ApiObject, frozen=True, kw_only=True):
    """The CSI drivers of one node, written by the kubelet."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class VolumeError(ApiObject, frozen=True, kw_only=True):
    time: Time | None = None
    message: str = ""
    error_code: Int32 | None = None


class VolumeAttachmentSource(ApiObject, frozen=True, kw_only=True):
    persistent_volume_name: str | None = None
    inline_volume_spec: PersistentVolumeSpec | None = None


class VolumeAttachmentSpec(ApiObject, frozen=True, kw_only=True):
    attacher: str = required(str)
    source: VolumeAttachmentSource = required(VolumeAttachmentSource)
    node_name: str = required(str)


class VolumeAttachmentStatus(ApiObject, frozen=True, kw_only=True):
    attached: bool = required(bool)
    attachment_metadata: Mapping[str, str] = {}
    attach_error: VolumeError | None = None
    detach_error: VolumeError | None = None


class VolumeAttachment(ApiObject, frozen=True, kw_only=True):
    """A volume to be attached to a node."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()
