"""What containers are made of besides their spec: cluster objects, devices, ids, parts of volumes."""

import logging
import os
import pwd
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from klet.aio.threads import Threads
from klet.api.pod import Pod
from klet.app.basics import Basics
from klet.app.objects import NodeObjects
from klet.app.settings import AgentSettings
from klet.host.beneath import list_directory, read_end
from klet.host.errors import FileError, FileMissing
from klet.host.files import remove_file, write_atomic
from klet.host.listening import HostSockets
from klet.host.processes import run_process
from klet.model.pods import PodUID
from klet.runtime.config.container_config import ContainerSettings
from klet.runtime.config.container_options import DeviceOptions, NoDevices
from klet.runtime.config.container_planner import ContainerFileMaker, ContainerPlanner, PodVolumes
from klet.runtime.config.id_blocks import IdBlock, IdBlocks, choose_range, parse_granted
from klet.runtime.config.sub_paths import BoundSubPaths, SubPaths
from klet.runtime.config.user_namespaces import UserNamespaces
from klet.runtime.environment.env_sources import (
    EnvironmentReader,
    FileReader,
    KnownResources,
    NodeResources,
    ObjectReader,
    ServiceReader,
    VolumeFiles,
)
from klet.runtime.host_ports import PortHolders
from klet.runtime.runtime_class import Handlers, RuntimeClasses, RuntimeHandlers

logger = logging.getLogger(__name__)

MAPPINGS_FILE = "userns"
KUBELET_USER = "kubelet"
GETSUBIDS = "getsubids"
GETSUBIDS_PATIENCE = timedelta(seconds=30)
_LONGEST_MAPPINGS = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPorts:
    """Where the parts of a container's configuration come from."""

    objects: ObjectReader
    services: ServiceReader
    resources: NodeResources
    runtime_classes: RuntimeClasses
    handlers: Handlers
    devices: DeviceOptions
    volume_files: FileReader
    sub_paths: SubPaths
    user_namespaces: UserNamespaces
    host_ports: PortHolders


async def open_container_ports(settings: AgentSettings, objects: NodeObjects, basics: Basics) -> ContainerPorts:
    """The real ones."""
    threads = basics.threads
    handlers = RuntimeHandlers(runtime=basics.runtime)
    granted = await read_granted_ids()
    ids = choose_range(per_pod=settings.user_ids.per_pod, max_pods=settings.user_ids.max_pods, granted=granted)
    mappings = PodMappingFiles(root=settings.root, threads=threads)
    user_namespaces = UserNamespaces(
        blocks=IdBlocks(ids=ids),
        files=mappings,
        handlers=handlers,
        randomness=basics.randomness,
        is_enabled=settings.user_ids.is_enabled,
    )
    if settings.user_ids.is_enabled:
        user_namespaces.restore(await mappings.read_all())
    return ContainerPorts(
        objects=objects.data,
        services=objects.services,
        resources=KnownResources(allocatable=settings.allocatable),
        runtime_classes=objects.runtime_classes,
        handlers=handlers,
        devices=NoDevices(),
        volume_files=VolumeFiles(threads=threads),
        sub_paths=BoundSubPaths(root=settings.root, threads=threads),
        user_namespaces=user_namespaces,
        host_ports=HostSockets(threads=threads),
    )


def build_planner(
    ports: ContainerPorts,
    *,
    files: ContainerFileMaker,
    volumes: PodVolumes,
    node_ips: Callable[[], tuple[str, ...]],
    settings: ContainerSettings,
) -> ContainerPlanner:
    environment = EnvironmentReader(
        objects=ports.objects,
        services=ports.services,
        node=ports.resources,
        files=ports.volume_files,
        node_ips=node_ips,
    )
    return ContainerPlanner(
        files=files,
        volumes=volumes,
        sub_paths=ports.sub_paths,
        environment=environment,
        devices=ports.devices,
        handlers=ports.handlers,
        settings=settings,
    )


async def read_granted_ids() -> IdBlock | None:
    """The subordinate ids of the user `kubelet`, if the machine has that user and a tool that tells them."""
    if not _has_user(KUBELET_USER) or shutil.which(GETSUBIDS) is None:
        return None
    users = (await run_process([GETSUBIDS, KUBELET_USER], timeout=GETSUBIDS_PATIENCE)).check()
    groups = (await run_process([GETSUBIDS, "-g", KUBELET_USER], timeout=GETSUBIDS_PATIENCE)).check()
    return parse_granted(users.stdout.decode(), groups.stdout.decode())


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


class PodMappingFiles:
    """The file `userns` in each pod's directory."""

    def __init__(self, *, root: Path, threads: Threads) -> None:
        self._pods = root / "pods"
        self._threads = threads

    async def read(self, uid: PodUID) -> bytes | None:
        return await self._threads.run(_read, self._pods, uid)

    async def read_all(self) -> dict[PodUID, bytes]:
        """What earlier lives of the agent wrote."""
        return await self._threads.run(_read_all, self._pods)

    async def write(self, uid: PodUID, data: bytes) -> None:
        await self._threads.run(_write, self._path(uid), data)

    async def remove(self, uid: PodUID) -> None:
        await self._threads.run(remove_file, self._path(uid))

    def _path(self, uid: PodUID) -> Path:
        return self._pods / uid / MAPPINGS_FILE


def _read(pods: Path, uid: PodUID) -> bytes | None:
    """Containers with a hostPath may write there: no link is followed, and no pipe is waited for."""
    try:
        return read_end(pods, uid, MAPPINGS_FILE, limit=_LONGEST_MAPPINGS)
    except FileMissing:
        return None


def _write(path: Path, data: bytes) -> None:
    """Down to the disk: ids must not be given out anew because the machine forgot them."""
    write_atomic(path, data, mode=0o644)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read_all(pods: Path) -> dict[PodUID, bytes]:
    found: dict[PodUID, bytes] = {}
    for uid, is_directory in list_directory(pods):
        if not is_directory or not isinstance(uid, PodUID):
            continue
        try:
            data = _read(pods, uid)
        except FileError as error:
            logger.warning("The ids of a pod cannot be read", extra={"uid": uid, "error": str(error)})
            continue
        if data is not None:
            found[uid] = data
    return found


class PodDirectoryFiles(Protocol):
    """The part of the pod files that is about whole pods."""

    async def prepare_pod(self, pod: Pod) -> None: ...

    async def pods_on_disk(self) -> frozenset[PodUID]: ...

    async def remove_pod(self, uid: PodUID) -> None: ...


class HeldVolumes(Protocol):
    """The part of a pod's volumes that is about their end."""

    async def release(self, uid: PodUID) -> None: ...

    async def remove(self, uid: PodUID) -> None: ...


class PodHoldings:
    """What a pod holds on the node besides its containers: its directory, and with it volumes, mounts and ids."""

    def __init__(
        self, *, files: PodDirectoryFiles, volumes: HeldVolumes, sub_paths: SubPaths, user_namespaces: UserNamespaces
    ) -> None:
        self._files = files
        self._volumes = volumes
        self._sub_paths = sub_paths
        self._user_namespaces = user_namespaces

    async def prepare_pod(self, pod: Pod) -> None:
        await self._files.prepare_pod(pod)

    async def release_volumes(self, uid: PodUID) -> None:
        """Nothing of the pod runs any more; its directory stays until no source has the pod."""
        await self._sub_paths.clean(uid)
        await self._volumes.release(uid)

    async def release_ids(self, uid: PodUID) -> None:
        await self._user_namespaces.release(uid)

    async def pods_on_disk(self) -> frozenset[PodUID]:
        return await self._files.pods_on_disk()

    async def remove_pod(self, uid: PodUID) -> None:
        await self._sub_paths.clean(uid)
        await self._volumes.remove(uid)
        await self._files.remove_pod(uid)
        self._user_namespaces.forget(uid)
