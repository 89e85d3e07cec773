"""Volume sources of network storage that once had a plugin inside the kubelet (core/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int32, required
from klet.api.references import LocalObjectReference, ObjectReference, SecretReference


class AWSElasticBlockStoreVolumeSource(ApiObject, frozen=True, kw_only=True):
    volume_id: str = required(str, name="volumeID")
    fs_type: str = ""
    partition: Int32 = 0
    read_only: bool = False


class AzureDiskVolumeSource(ApiObject, frozen=True, kw_only=True):
    disk_name: str = required(str)
    disk_uri: str = required(str, name="diskURI")
    caching_mode: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    kind: str | None = None


class AzureFileVolumeSource(ApiObject, frozen=True, kw_only=True):
    secret_name: str = required(str)
    share_name: str = required(str)
    read_only: bool = False


class AzureFilePersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    secret_name: str = required(str)
    share_name: str = required(str)
    read_only: bool = False
    secret_namespace: str | None = None


class CephFSVolumeSource(ApiObject, frozen=True, kw_only=True):
    monitors: tuple[str, ...] = required(tuple)
    path: str = ""
    user: str = ""
    secret_file: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class CephFSPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    monitors: tuple[str, ...] = required(tuple)
    path: str = ""
    user: str = ""
    secret_file: str = ""
    secret_ref: SecretReference | None = None
    read_only: bool = False


class CinderVolumeSource(ApiObject, frozen=True, kw_only=True):
    volume_id: str = required(str, name="volumeID")
    fs_type: str = ""
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None


class CinderPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    volume_id: str = required(str, name="volumeID")
    fs_type: str = ""
    read_only: bool = False
    secret_ref: SecretReference | None = None


class FCVolumeSource(ApiObject, frozen=True, kw_only=True):
    target_wwns: tuple[str, ...] = field(name="targetWWNs", default=())
    lun: Int32 | None = None
    fs_type: str = ""
    read_only: bool = False
    wwids: tuple[str, ...] = ()


class FlexVolumeSource(ApiObject, frozen=True, kw_only=True):
    driver: str = required(str)
    fs_type: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False
    options: Mapping[str, str] = {}


class FlexPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    driver: str = required(str)
    fs_type: str = ""
    secret_ref: SecretReference | None = None
    read_only: bool = False
    options: Mapping[str, str] = {}


class FlockerVolumeSource(ApiObject, frozen=True, kw_only=True):
    dataset_name: str = ""
    dataset_uuid: str = field(name="datasetUUID", default="")


class GCEPersistentDiskVolumeSource(ApiObject, frozen=True, kw_only=True):
    pd_name: str = required(str)
    fs_type: str = ""
    partition: Int32 = 0
    read_only: bool = False


class GitRepoVolumeSource(ApiObject, frozen=True, kw_only=True):
    repository: str = required(str)
    revision: str = ""
    directory: str = ""


class GlusterfsVolumeSource(ApiObject, frozen=True, kw_only=True):
    endpoints: str = required(str)
    path: str = required(str)
    read_only: bool = False


class GlusterfsPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    endpoints: str = required(str)
    path: str = required(str)
    read_only: bool = False
    endpoints_namespace: str | None = None


class ISCSIVolumeSource(ApiObject, frozen=True, kw_only=True):
    target_portal: str = required(str)
    iqn: str = required(str)
    lun: Int32 = required(int)
    iscsi_interface: str = ""
    fs_type: str = ""
    read_only: bool = False
    portals: tuple[str, ...] = ()
    chap_auth_discovery: bool = False
    chap_auth_session: bool = False
    secret_ref: LocalObjectReference | None = None
    initiator_name: str | None = None


class ISCSIPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    target_portal: str = required(str)
    iqn: str = required(str)
    lun: Int32 = required(int)
    iscsi_interface: str = ""
    fs_type: str = ""
    read_only: bool = False
    portals: tuple[str, ...] = ()
    chap_auth_discovery: bool = False
    chap_auth_session: bool = False
    secret_ref: SecretReference | None = None
    initiator_name: str | None = None


class PhotonPersistentDiskVolumeSource(ApiObject, frozen=True, kw_only=True):
    pd_id: str = required(str, name="pdID")
    fs_type: str = ""


class PortworxVolumeSource(ApiObject, frozen=True, kw_only=True):
    volume_id: str = required(str, name="volumeID")
    fs_type: str = ""
    read_only: bool = False


class QuobyteVolumeSource(ApiObject, frozen=True, kw_only=True):
    registry: str = required(str)
    volume: str = required(str)
    read_only: bool = False
    user: str = ""
    group: str = ""
    tenant: str = ""


class RBDVolumeSource(ApiObject, frozen=True, kw_only=True):
    monitors: tuple[str, ...] = required(tuple)
    image: str = required(str)
    fs_type: str = ""
    pool: str = ""
    user: str = ""
    keyring: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class RBDPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    monitors: tuple[str, ...] = required(tuple)
    image: str = required(str)
    fs_type: str = ""
    pool: str = ""
    user: str = ""
    keyring: str = ""
    secret_ref: SecretReference | None = None
    read_only: bool = False


class ScaleIOVolumeSource(ApiObject, frozen=True, kw_only=True):
    gateway: str = required(str)
    system: str = required(str)
    secret_ref: LocalObjectReference | None = None
    ssl_enabled: bool = False
    protection_domain: str = ""
    storage_pool: str = ""
    storage_mode: str = ""
    volume_name: str = ""
    fs_type: str = ""
    read_only: bool = False


class ScaleIOPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    gateway: str = required(str)
    system: str = required(str)
    secret_ref: SecretReference | None = None
    ssl_enabled: bool = False
    protection_domain: str = ""
    storage_pool: str = ""
    storage_mode: str = ""
    volume_name: str = ""
    fs_type: str = ""
    read_only: bool = False


class StorageOSVolumeSource(ApiObject, frozen=True, kw_only=True):
    volume_name: str = ""
    volume_namespace: str = ""
    fs_type: str = ""
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None


class StorageOSPersistentVolumeSource(ApiObject, frozen=True, kw_only=True):
    volume_name: str = ""
    volume_namespace: str = ""
    fs_type: str = ""
    read_only: bool = False
    secret_ref: ObjectReference | None = None


class VsphereVirtualDiskVolumeSource(ApiObject, frozen=True, kw_only=True):
    volume_path: str = required(str)
    fs_type: str = ""
    storage_policy_name: str = ""
    storage_policy_id: str = field(name="storagePolicyID", default="")
