"""What starts pods (sandboxes, containers and their hooks) and the plugin manager, wired."""

from collections.abc import Callable

from msgspec import Struct

from klet.app.boards import Boards
from klet.app.ports import ContainerPorts, Ports
from klet.app.settings import AgentSettings
from klet.model.roles import ContainerPins, CpuQuotas, Part
from klet.node.addresses import prefers_ipv6
from klet.plugins.boards import DesiredPlugins, RegisteredPlugins
from klet.plugins.manager import PluginManager
from klet.plugins.metrics import register_plugins
from klet.plugins.operations import PluginOperations
from klet.plugins.watcher import RegistryWatcher
from klet.runtime.config.container_planner import ContainerFileMaker, ContainerPlanner, MountableVolumes
from klet.runtime.creation import ContainerCreator
from klet.runtime.environment.env_sources import (
    EnvironmentReader,
)
from klet.runtime.executor import PodExecutor
from klet.runtime.gc import ContainerRemover
from klet.runtime.hooks import HookRunner
from klet.runtime.kill.killer import PodKiller
from klet.runtime.metrics import register_containers, register_hooks, register_sandboxes
from klet.runtime.pod_images import ImageEnsurer, PodImages
from klet.runtime.post_start import PostStart
from klet.runtime.reader import PodReader
from klet.runtime.removals import PodRemovals, StateSaver
from klet.runtime.sandboxes import SandboxMaker, SandboxSources
from klet.runtime.starter import ContainerStarter
from klet.status.restarts import KnownRestarts


class RuntimeParts(Struct, frozen=True, kw_only=True):
    """Everything between the decisions about a pod and the runtime."""

    reader: PodReader
    hooks: HookRunner
    killer: PodKiller
    remover: ContainerRemover
    sandboxes: SandboxMaker
    starter: ContainerStarter
    executor: PodExecutor


def build_runtime_parts(
    ports: Ports,
    settings: AgentSettings,
    boards: Boards,
    *,
    volumes: MountableVolumes,
    images: ImageEnsurer,
    pins: ContainerPins,
    quotas: CpuQuotas,
    state: StateSaver,
) -> RuntimeParts:
    """Build the reader of the runtime, and the executor of a pod's actions."""
    runtime, recorder, clock = ports.runtime, ports.recorder, ports.clock
    reader = PodReader(runtime=runtime, files=ports.termination_files)
    hooks = HookRunner(
        commands=runtime,
        http=ports.http,
        pods=reader,
        recorder=recorder,
        clock=clock,
        metrics=register_hooks(boards.metrics),
    )
    killer = PodKiller(runtime=runtime, hooks=hooks, recorder=recorder, clock=clock)
    remover = ContainerRemover(runtime=runtime, killer=killer, logs=ports.logs)
    sandboxes = _build_sandboxes(ports, settings, boards, volumes, quotas)
    starter = _build_starter(ports, settings, boards, volumes=volumes, images=images, pins=pins)
    return RuntimeParts(
        reader=reader,
        hooks=hooks,
        killer=killer,
        remover=remover,
        sandboxes=sandboxes,
        starter=starter,
        executor=PodExecutor(
            removals=PodRemovals(runtime=runtime, remover=remover, killer=killer, state=state, clock=clock),
            sandboxes=sandboxes,
            starter=starter,
            post_start=PostStart(hooks=hooks, killer=killer, recorder=recorder),
            killer=killer,
            recorder=recorder,
            turns=boards.turns,
            metrics=register_containers(boards.metrics),
        ),
    )


def _build_sandboxes(
    ports: Ports, settings: AgentSettings, boards: Boards, volumes: MountableVolumes, quotas: CpuQuotas
) -> SandboxMaker:
    return SandboxMaker(
        runtime=ports.runtime,
        sources=SandboxSources(
            dns=ports.dns,
            cgroups=ports.cgroups,
            quotas=quotas,
            runtime_classes=ports.containers.runtime_classes,
            user_namespaces=ports.containers.user_namespaces,
            host_ports=ports.containers.host_ports,
            volumes=volumes,
            claims=ports.containers.claims,
        ),
        allocations=boards.allocations,
        metrics=register_sandboxes(boards.metrics),
        recorder=ports.recorder,
        clock=ports.clock,
        settings=settings.sandbox,
    )


def _build_starter(
    ports: Ports,
    settings: AgentSettings,
    boards: Boards,
    *,
    volumes: MountableVolumes,
    images: ImageEnsurer,
    pins: ContainerPins,
) -> ContainerStarter:
    creator = ContainerCreator(
        runtime=ports.runtime,
        planner=_build_planner(
            ports.containers,
            files=ports.files,
            volumes=volumes,
            node_ips=ports.node_ips,
            pins=pins,
            settings=settings,
        ),
        logs=ports.logs,
        allocations=boards.allocations,
        pins=pins,
        clock=ports.clock,
    )
    return ContainerStarter(
        runtime=ports.runtime,
        images=PodImages(images=images, has_volumes=settings.has_image_volumes),
        counts=KnownRestarts(logs=ports.files, statuses=boards.statuses),
        creator=creator,
        links=ports.logs,
        recorder=ports.recorder,
        clock=ports.clock,
        backoff=boards.backoff,
    )


def _build_planner(
    ports: ContainerPorts,
    *,
    files: ContainerFileMaker,
    volumes: MountableVolumes,
    node_ips: Callable[[], tuple[str, ...]],
    pins: ContainerPins,
    settings: AgentSettings,
) -> ContainerPlanner:
    environment = EnvironmentReader(
        objects=ports.objects,
        services=ports.services,
        node=ports.resources,
        files=ports.volume_files,
        node_ips=node_ips,
        prefer_ipv6=prefers_ipv6(settings.node),
    )
    return ContainerPlanner(
        files=files,
        volumes=volumes,
        sub_paths=ports.sub_paths,
        environment=environment,
        devices=ports.devices,
        pins=pins,
        handlers=ports.handlers,
        settings=settings.container,
    )


def build_plugin_manager(ports: Ports, boards: Boards) -> tuple[Part, ...]:
    """Build the plugin manager; drivers and device plugins are containers, so it is of no use before the runtime."""
    if ports.plugins is None:
        return ()
    desired, registered = DesiredPlugins(), RegisteredPlugins()
    register_plugins(boards.metrics, desired, registered)
    manager = PluginManager(
        watcher=RegistryWatcher(watch=ports.plugins.watch, desired=desired, clock=ports.clock),
        desired=desired,
        registered=registered,
        operations=PluginOperations(
            sockets=ports.plugins.sockets, handlers=ports.plugins.handlers, registered=registered
        ),
        clock=ports.clock,
    )
    return (manager,)
