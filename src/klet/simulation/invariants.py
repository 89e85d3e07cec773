"""What must be true in every story: at each call to the runtime, at each new status, and at any time."""

from collections.abc import Mapping
from datetime import timedelta

from google.protobuf.message import Message

from klet.api.container_status import ContainerStatus
from klet.api.pod import PodStatus
from klet.api.pod_resources import is_sidecar
from klet.model.pods import PodUID
from klet.model.probes import ProbeKind
from klet.runtime.hashing import container_hash
from klet.simulation.chronicle import Chronicle, History, Instance
from klet.simulation.commands import POST_START, PRE_STOP
from klet.simulation.pods import DEBUGGERS, FILE
from klet.simulation.room import check_requests
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.fake_runtime.timeline import nanoseconds
from klet.testing.loop import EPOCH
from klet.wire import cri_v1_pb2 as pb

WRITES = frozenset(
    {
        "RunPodSandbox",
        "CreateContainer",
        "StartContainer",
        "StopContainer",
        "RemoveContainer",
        "StopPodSandbox",
        "RemovePodSandbox",
    }
)
FIRST_BACKOFF = timedelta(seconds=10)
CLOCK_SLACK = timedelta(seconds=5)
"""Clocks are stepped by up to two seconds, some times."""
KILL_SLACK = timedelta(seconds=45)
"""A step of the pod may have to end or fail first, and then wait for its back-off."""
REACTION = timedelta(seconds=10)
SLOW_REACTION = timedelta(seconds=100)
"""One relist or one resync, and a call that takes its time."""
PROBE_REACTION = timedelta(seconds=30)
LIVENESS_REACTION = timedelta(seconds=60)
"""Two probes, their back-off after a disturbance, and a step of the pod that has to end first."""
CALM = timedelta(seconds=30)
TERMINAL = frozenset({"Succeeded", "Failed"})


class RuntimeWatch:
    """Checks every call that changes something. An Observer of the agent's transport."""

    def __init__(self, *, chronicle: Chronicle, runtime: FakeRuntime, lingering: bool) -> None:
        self._chronicle = chronicle
        self._runtime = runtime
        self._lingering = lingering
        self._started: set[str] = set()

    def before(self, rpc: str, request: Message) -> None:
        if _is_hook(request):
            self._chronicle.in_flight += 1
        if rpc not in WRITES:
            return
        self._chronicle.look()
        self._chronicle.in_flight += 1
        if not self._removes_dead(request):
            self._chronicle.writes += 1
        match request:
            case pb.CreateContainerRequest():
                self._check_create(request)
            case pb.RunPodSandboxRequest():
                self._check_sandbox(PodUID(request.config.metadata.uid))
            case pb.StopContainerRequest() | pb.RemoveContainerRequest():
                self._check_end(rpc, request.container_id)
            case pb.StopPodSandboxRequest() | pb.RemovePodSandboxRequest():
                sandbox = next((s for s in self._runtime.sandboxes() if s.id == request.pod_sandbox_id), None)
                for container_id in sandbox.containers if sandbox is not None else ():
                    self._check_end(rpc, container_id)
            case _:
                pass

    def _removes_dead(self, request: Message) -> bool:
        """Return whether this is garbage collection, which may go on when all is settled."""
        match request:
            case pb.RemoveContainerRequest():
                instance = self._chronicle.instance(request.container_id)
                return instance is None or not instance.is_alive
            case pb.RemovePodSandboxRequest() | pb.StopPodSandboxRequest():
                return not any(s.id == request.pod_sandbox_id and s.is_ready for s in self._runtime.sandboxes())
            case _:
                return False

    def after(self, rpc: str, request: Message) -> None:
        if _is_hook(request):
            self._chronicle.in_flight -= 1
        if rpc not in WRITES:
            return
        self._chronicle.in_flight -= 1
        self._chronicle.look()
        if rpc in {"StartContainer", "RunPodSandbox"}:
            check_one_instance(self._chronicle)
        if rpc == "StartContainer":
            check_requests(self._chronicle)
            for instance in self._chronicle.alive():
                if instance.container.id not in self._started:
                    self._started.add(instance.container.id)
                    check_start(self._chronicle, instance)

    def _check_create(self, request: pb.CreateContainerRequest) -> None:
        """Check that what runs is not created again; abandoned calls may come in between."""
        uid, name = PodUID(request.sandbox_config.metadata.uid), request.config.metadata.name
        history = self._chronicle.histories[uid]
        newest = history.newest(name)
        # One that never ran may be replaced: a late call of a killed agent may have left it behind.
        if name in DEBUGGERS and newest is not None and newest.made_for is history and newest.has_started:
            self._chronicle.violate(f"ephemeral container {uid}/{name} is made again")
        if not self._lingering and newest is not None and newest.is_alive:
            self._chronicle.violate(f"{uid}/{name} is started again although {_name(newest)} runs")

    def _check_sandbox(self, uid: PodUID) -> None:
        sandboxes = self._chronicle.sandboxes_of(uid)
        if not self._lingering and sum(sandbox.is_ready for sandbox in sandboxes) == 1 and sandboxes[-1].is_ready:
            self._chronicle.violate(f"{uid} gets another sandbox although {sandboxes[-1].id[:8]} is ready")

    def _check_end(self, rpc: str, container_id: str) -> None:
        """Check that a wanted pod's containers run until they end by themselves, or their spec or sandbox is gone."""
        instance = self._chronicle.instance(container_id)
        if instance is None or not instance.is_alive:
            return
        instance.is_unnoticed = self._lingering and rpc == "RemoveContainer"
        history = self._chronicle.histories[instance.uid]
        sandboxes = self._chronicle.sandboxes_of(instance.uid)
        since = history.since + (history.grace + KILL_SLACK if history.comes_back else timedelta())
        if self._chronicle.probes_may_fail or self._chronicle.commands.is_reason_to_kill(instance.attempt):
            return
        if self._may_restart_all(history):
            return
        if (
            history.is_wanted
            and nanoseconds(since) < instance.container.created_at
            and instance.spec_hash in {f"{container_hash(container):x}" for container in history.pod.spec.containers}
            and sum(sandbox.is_ready for sandbox in sandboxes) == 1
            and instance.container.sandbox.is_ready
            and not any(sandbox.id in self._chronicle.ended_sandboxes for sandbox in sandboxes)
        ):
            self._chronicle.violate(f"{rpc} ends {_name(instance)}, which is wanted and runs")

    def _may_restart_all(self, history: History) -> bool:
        """Return whether a container asked for it: not long ago, or so that the runtime still shows it."""
        recent = nanoseconds(self._chronicle.now - SLOW_REACTION - history.patience)
        return any(each.exists or each.container.finished_at > recent for each in history.restart_sources())


def _is_hook(request: Message) -> bool:
    """Return whether a hook runs: a container is being started or stopped, though nothing else can be seen of that."""
    return isinstance(request, pb.ExecSyncRequest) and request.cmd[0] in {POST_START, PRE_STOP}


def check_one_instance(chronicle: Chronicle) -> None:
    """Check that a container has at most one live instance, and that of all pods with one name only one runs."""
    found: dict[tuple[PodUID, str], Instance] = {}
    for instance in chronicle.alive():
        key = (instance.uid, instance.name)
        if key in found:
            chronicle.violate(f"two live instances: {_name(found[key])} and {_name(instance)}")
        found[key] = instance
    for uid in dict.fromkeys(uid for uid, _ in found):
        if chronicle.histories[uid].source != FILE:
            continue
        for rival in chronicle.rivals(uid):
            alive = next((each for each in rival.instances if each.is_alive), None)
            if alive is not None:
                chronicle.violate(f"{_name(alive)} runs beside {uid}, which has the same name")


def check_start(chronicle: Chronicle, instance: Instance) -> None:
    """Check that a start comes after its back-off and the init containers, and with a higher restart count."""
    history = chronicle.histories[instance.uid]
    mine = [each for each in history.instances if each.name == instance.name]
    mine = mine[: mine.index(instance) + 1]
    for other in mine[:-1]:
        is_mine = other.made_for is history or other.exists
        counts = bool(other.container.started_at) and is_mine and not other.is_unnoticed
        if counts and instance.restart_count <= other.restart_count:
            chronicle.violate(f"{_name(instance)} does not count on from {_name(other)}")
    _check_backoff(chronicle, history, mine)
    if instance.name in {container.name for container in history.pod.spec.containers}:
        _check_initialized(chronicle, history, instance)


def _check_backoff(chronicle: Chronicle, history: History, mine: list[Instance]) -> None:
    """Check that all restarts in a run of the agent but the first wait at least the first back-off."""
    if len(mine) < 3 or len({each.agent_run for each in mine[-3:]}) > 1:
        return
    if len({(each.spec_hash, each.container.sandbox.id) for each in mine[-3:]}) > 1:
        return  # one that was changed starts without delay; a new sandbox forgets the ends of init containers
    noticed = (SLOW_REACTION + history.patience) // timedelta(microseconds=1) * 1000
    if any(each.container.finished_at + noticed >= mine[-3].container.created_at for each in history.restart_sources()):
        return  # what restarts with all others starts as if it had never run
    if chronicle.probes_may_fail or any(chronicle.commands.is_reason_to_kill(each.attempt) for each in mine[-3:-1]):
        return  # what is stopped to be started again does not wait, and does not count
    first, last, this = (each.container for each in mine[-3:])
    gap = timedelta(microseconds=(this.started_at - last.finished_at) // 1000)
    if first.finished_at and last.finished_at and gap < FIRST_BACKOFF - CLOCK_SLACK:
        chronicle.violate(f"{_name(mine[-1])} was restarted after {gap}, sooner than its back-off")


def _check_initialized(chronicle: Chronicle, history: History, instance: Instance) -> None:
    sandbox = instance.container.sandbox
    # Once what asked for a restart of all is removed, so is all that ran before.
    gone = [each.container.finished_at for each in history.restart_sources() if not each.exists]
    for container in history.pod.spec.init_containers:
        before = [
            each
            for each in history.instances
            if each.name == container.name
            and each.container.sandbox is sandbox
            and each.container.created_at > max(gone, default=0)
        ]
        if is_sidecar(container):
            fine = any(each.container.started_at and has_started(chronicle, history, each) for each in before)
        else:
            fine = any(each.container.finished_at and each.container.exit_code == 0 for each in before)
        if not fine:
            chronicle.violate(f"{_name(instance)} runs before init container {container.name} has done its part")


def has_started(chronicle: Chronicle, history: History, instance: Instance) -> bool:
    """Return whether the instance has passed its startup probe, if there is one."""
    container = history.container(instance.name)
    if container is None or container.startup_probe is None:
        return True
    return True in chronicle.commands.record(instance.attempt).probes[ProbeKind.STARTUP]


def check_status(chronicle: Chronicle, uid: PodUID, status: PodStatus | None) -> None:
    """Check that a status agrees with itself and with those before it."""
    history = chronicle.histories.get(uid)
    if status is None or history is None:
        return
    if may_be_terminating(chronicle, history):
        return  # what is reported may still be about the pod that had this UID before
    if history.phase in TERMINAL and status.phase != history.phase:
        chronicle.violate(f"{uid} went from {history.phase} to {status.phase}")
    history.phase = status.phase
    for each in (*status.container_statuses, *status.init_container_statuses):
        if each.restart_count < history.restart_counts.get(each.name, 0):
            before = history.restart_counts[each.name]
            chronicle.violate(f"restart count of {uid}/{each.name} fell from {before} to {each.restart_count}")
        history.restart_counts[each.name] = each.restart_count
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions)
    if ready and not all(each.state.running is not None and each.ready for each in status.container_statuses):
        chronicle.violate(f"{uid} is Ready although a container is not")
    if ready and status.phase != "Running":
        chronicle.violate(f"{uid} is Ready and {status.phase}")
    for each in (*status.container_statuses, *status.init_container_statuses):
        _check_probed(chronicle, history, each)


def _check_probed(chronicle: Chronicle, history: History, status: ContainerStatus) -> None:
    """Check that a container is ready and started only after its probe succeeded; a new instance counts on.

    A pod that is being stopped may have no probes any more, and what is not probed counts as well.
    """
    instance = chronicle.instance(status.container_id.rpartition("://")[2])
    container = history.container(status.name)
    if instance is None or container is None or status.state.running is None or not history.is_wanted:
        return
    answers = chronicle.commands.record(instance.attempt).probes
    for claimed, kind, probe in (
        (status.ready, ProbeKind.READINESS, container.readiness_probe),
        (status.started, ProbeKind.STARTUP, container.startup_probe),
    ):
        if claimed and probe is not None and True not in answers[kind]:
            chronicle.violate(
                f"{_name(instance)} is reported to have passed its {kind} probe, which answered {answers[kind]}"
            )


def check_reaction(chronicle: Chronicle, statuses: Mapping[PodUID, PodStatus]) -> None:
    """Check that an end is reported at once; after a disturbance, with the next relist at the latest."""
    for uid, history in chronicle.histories.items():
        status = None if not history.is_wanted or may_be_terminating(chronicle, history) else statuses.get(uid)
        _check_probes(chronicle, uid, status)
        for each in status.container_statuses if status is not None else ():
            instance = chronicle.instance(each.container_id.rpartition("://")[2])
            if instance is None or instance.is_alive or each.state.running is None:
                continue
            ended = EPOCH + timedelta(microseconds=(instance.container.finished_at - nanoseconds(EPOCH)) // 1000)
            calm = chronicle.disturbed_at < ended - CALM
            late = chronicle.now - (ended if calm else max(ended, chronicle.disturbed_at))
            # A worker that is stopping the pod's other containers reports when it has done so.
            if late > (REACTION if calm else SLOW_REACTION) + history.patience:
                chronicle.violate(f"{_name(instance)} ended {late} ago and is still reported as running")


def _check_probes(chronicle: Chronicle, uid: PodUID, status: PodStatus | None) -> None:
    """Check that a container whose probes fail is not ready; periods have up to five seconds, and two may be needed."""
    failing = chronicle.commands.unready(uid)
    for each in status.container_statuses if status is not None and failing else ():
        instance = chronicle.instance(each.container_id.rpartition("://")[2])
        if each.ready and each.name in failing and instance is not None and instance.is_alive:
            late = chronicle.now - max(failing[each.name], chronicle.disturbed_at)
            if late > PROBE_REACTION:
                chronicle.violate(f"{uid}/{each.name} fails its probes for {late} and is reported as ready")


def check_leftovers(chronicle: Chronicle) -> None:
    """Check that nothing outlives its pod by more than its grace; each disturbance gives more time."""
    chronicle.look()
    check_one_instance(chronicle)
    for instance in chronicle.alive():
        history = chronicle.histories[instance.uid]
        if history.is_wanted:
            continue
        late = chronicle.now - max(history.since, chronicle.disturbed_at) - history.grace
        if late > KILL_SLACK:
            chronicle.violate(f"{_name(instance)} outlives its pod by {late} more than its grace")


def check_not_live(chronicle: Chronicle) -> None:
    """Check that containers whose liveness probe fails are ended."""
    for instance in chronicle.alive():
        history = chronicle.histories[instance.uid]
        if not history.is_wanted or not is_not_live(chronicle, history, instance):
            continue
        since = max(chronicle.commands.not_live_since(instance.attempt) or EPOCH, chronicle.disturbed_at, history.since)
        if chronicle.now - since > LIVENESS_REACTION + history.patience:
            chronicle.violate(f"{_name(instance)} fails its liveness probe for {chronicle.now - since} and still runs")


def is_not_live(chronicle: Chronicle, history: History, instance: Instance) -> bool:
    """Return whether the instance has a liveness probe that fails, and is probed at all."""
    container = history.container(instance.name)
    return (
        container is not None
        and container.liveness_probe is not None
        and chronicle.commands.not_live_since(instance.attempt) is not None
        and has_started(chronicle, history, instance)
    )


def may_be_terminating(chronicle: Chronicle, history: History) -> bool:
    """Return whether a pod that came back under its UID may still be stopped: nothing is reported of it then."""
    return history.comes_back and chronicle.now < history.since + history.grace + KILL_SLACK


def _name(instance: Instance) -> str:
    return f"{instance.uid}/{instance.name} ({instance.container.id[:8]}, restart {instance.restart_count})"
