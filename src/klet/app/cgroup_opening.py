"""How the cgroups of the node and its pods are opened, and what keeps them while the agent runs."""

from collections.abc import Awaitable, Callable, Iterator

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.cgroup_settings import NodeCgroupSettings
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.host.cgroups.hierarchy import Hierarchy
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.manager import CgroupManager, LateUnits, NoUnits, Units
from klet.host.cgroups.members import CgroupMembers
from klet.host.cgroups.metrics import register_cgroups
from klet.host.cgroups.names import ROOT, CgroupDriver, literal_path, parse_cgroupfs
from klet.metrics import MetricRegistry
from klet.model.causes import CauseRecorder
from klet.model.roles import Part
from klet.resources.names import pods_root
from klet.resources.node_allocatable import NodeAllocatable
from klet.resources.node_processes import AgentPlace, SystemProcesses
from klet.resources.pod_cgroups import NoPodCgroups, PodCgroups
from klet.resources.qos_cgroups import NoQosCgroups, QosCgroups
from klet.resources.qos_repair import QosRepair
from klet.sync.cgroup_step import CgroupStep


class CgroupPorts(Struct, frozen=True, kw_only=True):
    """What looks after the cgroups of pods, of their classes, and of the node."""

    pods: PodCgroups | NoPodCgroups
    qos: QosCgroups | NoQosCgroups
    prepare: Callable[[str], Awaitable[None]]
    """Makes the cgroups that all pods live in, with this cgroup driver, and limits the reserved ones."""
    parts: tuple[Part, ...]
    """What runs once that is done."""


def open_cgroups(
    settings: AgentSettings,
    hierarchy: Hierarchy,
    *,
    members: CgroupMembers,
    threads: Threads,
    recorder: CauseRecorder,
    registry: MetricRegistry,
    clock: Clock,
) -> CgroupPorts:
    """Return the cgroups of the node; they are made when the runtime has said how."""
    units = LateUnits()
    cgroups = CgroupManager(
        hierarchy=hierarchy, units=units, threads=threads, clock=clock, durations=register_cgroups(registry)
    )
    # The root is written as a path whatever the driver is, as upstream has it.
    root = parse_cgroupfs(settings.cgroup_root)
    pods_in = pods_root(root) if settings.cgroups_per_qos else root
    allocatable = NodeAllocatable(
        cgroups=cgroups, root=pods_in, rules=settings.node_cgroups.allocatable, recorder=recorder, clock=clock
    )
    parts = tuple(_build_parts(settings.node_cgroups, members, clock))
    if pods_in != ROOT:
        parts = (allocatable, *parts)

    async def choose_driver(driver: str) -> None:
        units.choose(build_units(driver, hierarchy.mode))

    if not settings.cgroups_per_qos:
        return CgroupPorts(pods=NoPodCgroups(), qos=NoQosCgroups(), prepare=choose_driver, parts=parts)
    qos = QosCgroups(cgroups=cgroups, kubepods=pods_in, rules=settings.qos, root_limits=lambda: allocatable.enforced)

    async def prepare(driver: str) -> None:
        await choose_driver(driver)
        await allocatable.make_root()
        await qos.start()
        await allocatable.limit_reserved()

    pods = PodCgroups(cgroups=cgroups, kubepods=pods_in, rules=settings.pod_cgroups)
    return CgroupPorts(pods=pods, qos=qos, prepare=prepare, parts=parts)


def _build_parts(wanted: NodeCgroupSettings, members: CgroupMembers, clock: Clock) -> Iterator[Part]:
    """Yield what looks after processes. Their cgroups are paths, whatever the driver is, as upstream has it."""
    if wanted.system:
        yield SystemProcesses(processes=members, source="/", target=literal_path(wanted.system), clock=clock)
    cgroup = literal_path(wanted.agent) if wanted.agent else ""
    yield AgentPlace(process=members, cgroup=cgroup, oom_score=wanted.oom_score, clock=clock)


def build_qos_repair(ports: Ports, step: CgroupStep, pods_are_known: Callable[[], bool]) -> QosRepair:
    """Return what repairs the cgroups of the QoS classes."""
    return QosRepair(
        cgroups=ports.qos,
        pods_are_known=pods_are_known,
        balance=step.balance,
        recorder=ports.recorder,
        clock=ports.clock,
    )


def build_units(driver: str, mode: CgroupMode) -> Units:
    if driver != CgroupDriver.SYSTEMD:
        return NoUnits()
    # Only a node with this driver pays for the D-Bus library.
    from klet.host.cgroups.systemd import SystemdUnits  # noqa: PLC0415 - see above
    from klet.host.systemd_bus import SystemdConnection  # noqa: PLC0415 - see above

    return SystemdUnits(bus=SystemdConnection(), mode=mode)
