"""What a container is doing, as the kubelet reports it (core/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, Int32, Int64, required
from klet.api.container import ResourceRequirements
from klet.api.quantity import Quantity
from klet.api.times import Time


class ContainerStateWaiting(ApiObject, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class ContainerStateRunning(ApiObject, frozen=True, kw_only=True):
    started_at: Time | None = None


class ContainerStateTerminated(ApiObject, frozen=True, kw_only=True):
    exit_code: Int32 = required(int)
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: Time | None = None
    finished_at: Time | None = None
    container_id: str = field(name="containerID", default="")


class ContainerState(ApiObject, frozen=True, kw_only=True):
    """Waiting, running or terminated: at most one is set."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class VolumeMountStatus(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    mount_path: str = required(str)
    read_only: bool = False
    recursive_read_only: str | None = None


class LinuxContainerUser(ApiObject, frozen=True, kw_only=True):
    uid: Int64 = required(int)
    gid: Int64 = required(int)
    supplemental_groups: tuple[Int64, ...] = ()


class ContainerUser(ApiObject, frozen=True, kw_only=True):
    linux: LinuxContainerUser | None = None


class ResourceHealth(ApiObject, frozen=True, kw_only=True):
    resource_id: str = required(str, name="resourceID")
    health: str = ""


class ResourceStatus(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    resources: tuple[ResourceHealth, ...] = ()


class ContainerStatus(ApiObject, frozen=True, kw_only=True):
    """One container of a pod, as observed."""

    name: str = required(str)
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = required(bool)
    restart_count: Int32 = required(int)
    image: str = required(str)
    image_id: str = required(str, name="imageID")
    container_id: str = field(name="containerID", default="")
    started: bool | None = None
    allocated_resources: Mapping[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    volume_mounts: tuple[VolumeMountStatus, ...] = ()
    user: ContainerUser | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] = ()
    stop_signal: str | None = None
