"""What containers are made of besides their spec: cluster objects, devices, ids, parts of volumes."""

from collections.abc import Callable
from dataclasses import dataclass

from klet.app.basics import Basics
from klet.app.objects import NodeObjects
from klet.app.settings import AgentSettings
from klet.host.listening import HostSockets
from klet.host.subordinate_ids import read_granted_ids
from klet.model.roles import NodeResources, ObjectReader
from klet.runtime.config.container_config import ContainerSettings
from klet.runtime.config.container_options import DeviceOptions, NoDevices
from klet.runtime.config.container_planner import ContainerFileMaker, ContainerPlanner, MountableVolumes
from klet.runtime.config.id_blocks import IdBlocks, choose_range, parse_granted
from klet.runtime.config.mapping_files import PodMappingFiles
from klet.runtime.config.sub_paths import BoundSubPaths, SubPaths
from klet.runtime.config.user_namespaces import UserNamespaces
from klet.runtime.environment.env_sources import (
    EnvironmentReader,
    FileReader,
    KnownResources,
    ServiceReader,
    VolumeFiles,
)
from klet.runtime.host_ports import PortHolders
from klet.runtime.runtime_class import Handlers, RuntimeClasses, RuntimeHandlers

KUBELET_USER = "kubelet"


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
    granted = await read_granted_ids(KUBELET_USER)
    ids = choose_range(
        per_pod=settings.user_ids.per_pod,
        max_pods=settings.user_ids.max_pods,
        granted=parse_granted(granted.users, granted.groups) if granted is not None else None,
    )
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
    volumes: MountableVolumes,
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
