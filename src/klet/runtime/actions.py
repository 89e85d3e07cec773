"""Computes what to do with a pod's sandbox and containers, from its spec and its runtime status (computePodActions)."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import astuple, replace

from klet.api.container import Container
from klet.api.pod import Pod
from klet.model.causes import Finding
from klet.model.pods import subject_of
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult, ProbeView
from klet.model.reasons import Reason
from klet.model.restart_rules import ALL_RESTARTING, RESTART_ALL, is_source
from klet.model.runtime import ContainerId, ContainerRecord, PodRuntimeStatus, RuntimeContainerState, SandboxId
from klet.runtime.hashing import container_hash
from klet.runtime.init_actions import InitPlan, plan_init_containers
from klet.runtime.restart import NEVER, ON_FAILURE, effective_policy, should_restart

DECIDER = "runtime.actions"
INIT_REASON = "it is the next init container to run"
SHORTEST_ROUND = timedelta(seconds=2)
"""How long a container ran, at least, before all restart again. Upstream has no back-off for this either, but it looks
at its containers once in a second, and again to see that they are gone; klet would restart a pod as fast as it exits.
"""
SANDBOX_CHANGED = "Pod sandbox changed, it will be killed and re-created."


class KillReason(StrEnum):
    """Why one container of a pod is killed; probes may bring their own grace period."""

    UNKNOWN = "Unknown"
    STARTUP_PROBE = "StartupProbe"
    LIVENESS_PROBE = "LivenessProbe"
    FAILED_POST_START = "FailedPostStartHook"
    RESTART_ALL = "RestartAllContainers"


class ContainerKill(Struct, frozen=True):
    """One container to kill while the rest of the pod goes on."""

    id: ContainerId
    name: str
    message: str
    reason: KillReason = KillReason.UNKNOWN


class ContainerReset(Struct, frozen=True):
    """One container to remove, so that it starts as if it had never run; one that may run is killed before."""

    id: ContainerId
    name: str
    kill: bool


class SandboxPlan(Struct, frozen=True, kw_only=True):
    """Whether the pod needs a new sandbox, and which attempt it would be."""

    create: bool
    attempt: int
    id: SandboxId | None
    why: str = ""


class PodActions(Struct, frozen=True, kw_only=True, eq=False):
    """Everything one sync of a pod does to the runtime. Indexes point into the spec's container lists."""

    kill_pod: bool = False
    create_sandbox: bool = False
    sandbox_id: SandboxId | None = None
    attempt: int = 0
    start_init: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    start_ephemeral: tuple[int, ...] = ()
    kill: tuple[ContainerKill, ...] = ()
    reset: tuple[ContainerReset, ...] = ()
    """What is removed because all containers restart, in this order. They are started by the next sync."""
    reset_not_before: datetime | None = None
    findings: tuple[Finding, ...] = ()
    """Why. Not compared: actions that do the same are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PodActions) and _without_findings(self) == _without_findings(other)

    def __hash__(self) -> int:
        return hash(_without_findings(self))

    @property
    def is_idle(self) -> bool:
        """True if the runtime already matches the spec."""
        return not (self.kill_pod or self.create_sandbox or self.starts or self.kill or self.reset)

    @property
    def starts(self) -> bool:
        return bool(self.start_init or self.start or self.start_ephemeral)


def _without_findings(actions: PodActions) -> tuple[object, ...]:
    return astuple(replace(actions, findings=()))


def plan_sandbox(pod: Pod, status: PodRuntimeStatus) -> SandboxPlan:
    """Decide whether the newest sandbox can be used (PodSandboxChanged)."""
    if not status.sandboxes:
        return SandboxPlan(create=True, attempt=0, id=None, why="no sandbox exists")
    newest = status.sandboxes[0]
    fresh = SandboxPlan(create=True, attempt=newest.attempt + 1, id=newest.id)
    if sum(sandbox.ready for sandbox in status.sandboxes) > 1:
        # Upstream: there must be one ready sandbox at most; all are killed, and one is created.
        return replace(fresh, why="more than one sandbox is ready")
    if not newest.ready:
        return replace(fresh, why="the sandbox is not ready")
    if newest.host_network != pod.spec.host_network:
        # No id, as upstream: without one no SandboxChanged Event is recorded.
        return replace(fresh, id=None, why="the sandbox has another network namespace mode")
    if not pod.spec.host_network and not newest.ips:
        return replace(fresh, why="the sandbox has no IP address")
    return SandboxPlan(create=False, attempt=newest.attempt, id=newest.id)


def compute_pod_actions(
    pod: Pod,
    status: PodRuntimeStatus,
    *,
    probes: ProbeView,
    restart_all: bool = False,
    is_restarting_all: bool = False,
) -> PodActions:
    """Return what brings the runtime from `status` to what the spec wants.

    `restart_all` is the gate RestartAllContainersOnContainerExits. `is_restarting_all` says that the status, as it is
    reported now, has the condition AllContainersRestarting.
    """
    sandbox = plan_sandbox(pod, status)
    if is_restarting_all:
        return _with_reset(pod, status, sandbox)
    if sandbox.create:
        return _with_new_sandbox(pod, status, sandbox)
    # An ephemeral container is started once and never restarted, also before initialization is complete.
    ephemeral = tuple(
        index for index, container in enumerate(pod.spec.ephemeral_containers) if status.newest(container.name) is None
    )
    init = plan_init_containers(pod, status, probes=probes, restart_all=restart_all)
    actions = PodActions(
        kill_pod=init.kill_pod,
        sandbox_id=sandbox.id,
        attempt=sandbox.attempt,
        start_init=init.start,
        start_ephemeral=ephemeral,
        kill=tuple(_init_kill(kill.id, kill.name, kill.message, kill.probe) for kill in init.kill),
        findings=_init_findings(pod, init),
    )
    # Regular containers wait until all init containers are done; sidecars count once they have started.
    if init.kill_pod or not init.initialized:
        return actions
    return _with_regular_containers(pod, status, actions, probes=probes, restart_all=restart_all)


def _with_reset(pod: Pod, status: PodRuntimeStatus, sandbox: SandboxPlan) -> PodActions:
    """Remove all containers but the ephemeral ones, those last whose exit asked for it.

    So what asked for it can be read from the runtime until it is done, whenever the agent dies. The sandbox and the
    volumes stay. A sandbox that cannot be used is replaced first, and the containers are removed by the next sync.
    """
    if sandbox.create:
        why = f"{sandbox.why}, while all containers are to restart"
        return PodActions(
            kill_pod=True,
            create_sandbox=True,
            sandbox_id=sandbox.id,
            attempt=sandbox.attempt,
            findings=_sandbox_findings(pod, sandbox, why, next_step="remove all containers, to start them again"),
        )
    # Upstream's order: regular containers before init containers, and in the end what asked for it.
    every = [*_records(pod.spec.containers, status), *_records(pod.spec.init_containers, status)]
    sources = [(container, record) for container, record in every if is_source(container, record)]
    targets = [(container, record) for container, record in every if not is_source(container, record)]
    started = [record.started_at for _, record in sources if record.started_at is not None]
    return PodActions(
        sandbox_id=sandbox.id,
        attempt=sandbox.attempt,
        reset=tuple(
            ContainerReset(record.id, container.name, record.state is not RuntimeContainerState.EXITED)
            for container, record in (*targets, *sources)
        ),
        reset_not_before=max(started) + SHORTEST_ROUND if started else None,
        findings=(_reset_finding(pod, sources),),
    )


def _records(containers: Sequence[Container], status: PodRuntimeStatus) -> Iterator[tuple[Container, ContainerRecord]]:
    """Return every record of these containers, in the order of the spec."""
    for container in containers:
        yield from ((container, record) for record in status.containers if record.name == container.name)


def _reset_finding(pod: Pod, sources: Sequence[tuple[Container, ContainerRecord]]) -> Finding:
    following = "start all containers again, init containers first"
    if not sources:
        why = f"condition {ALL_RESTARTING} is True, and containers are left"
        return _finding(pod, Reason.RESTART_ALL_CONTAINERS, why, next_step=following)
    container, record = sources[0]
    why = f"container {container.name} exited with code {record.exit_code}, and its rule for that is {RESTART_ALL}"
    return Finding(
        subject=subject_of(pod),
        decider=DECIDER,
        decision=Reason.RESTART_ALL_CONTAINERS,
        message=why,
        measurements={"container": container.name, "exitCode": record.exit_code},
        since=record.finished_at,
        next=following,
    )


def _with_new_sandbox(pod: Pod, status: PodRuntimeStatus, sandbox: SandboxPlan) -> PodActions:
    base = PodActions(kill_pod=True, create_sandbox=True, sandbox_id=sandbox.id, attempt=sandbox.attempt)
    # Upstream: once containers exist, a second sandbox would be a restart, which the policy forbids.
    if pod.spec.restart_policy == NEVER and sandbox.attempt != 0 and status.containers:
        why = f"{sandbox.why} and the restart policy is Never"
        return replace(base, create_sandbox=False, findings=(_finding(pod, Reason.KILL_POD, why),))
    start = tuple(index for index, container in enumerate(pod.spec.containers) if not _is_done(pod, container, status))
    # Nothing is left to run, so there is no sandbox to make. A container in state unknown may not have completed.
    if not start and any(
        (record := status.newest(container.name)) and record.state is not RuntimeContainerState.UNKNOWN
        for container in pod.spec.containers
    ):
        why = f"{sandbox.why} and every container has completed"
        return replace(base, create_sandbox=False, findings=(_finding(pod, Reason.KILL_POD, why),))
    findings = _sandbox_findings(pod, sandbox, sandbox.why, next_step="start the containers in the sandbox")
    if pod.spec.init_containers:
        first = _finding(pod, Reason.START_INIT_CONTAINER, INIT_REASON, container=pod.spec.init_containers[0].name)
        return replace(base, start_init=(0,), findings=(*findings, first))
    starts = (_start_finding(pod, pod.spec.containers[index], None) for index in start)
    return replace(base, start=start, findings=(*findings, *starts))


def _sandbox_findings(pod: Pod, sandbox: SandboxPlan, why: str, *, next_step: str) -> tuple[Finding, ...]:
    made = _finding(pod, Reason.CREATE_SANDBOX, why, attempt=sandbox.attempt, next_step=next_step)
    return (made,) if sandbox.id is None else (_finding(pod, Reason.SANDBOX_CHANGED, SANDBOX_CHANGED), made)


def _is_done(pod: Pod, container: Container, status: PodRuntimeStatus) -> bool:
    """Return whether a container has succeeded for good: with OnFailure it does not run again in a new sandbox."""
    record = status.newest(container.name)
    return (
        record is not None
        and record.state is RuntimeContainerState.EXITED
        and record.exit_code == 0
        and effective_policy(container, pod) == ON_FAILURE
    )


def _with_regular_containers(
    pod: Pod, status: PodRuntimeStatus, actions: PodActions, *, probes: ProbeView, restart_all: bool
) -> PodActions:
    start: list[int] = []
    kill: list[ContainerKill] = list(actions.kill)
    findings: list[Finding] = list(actions.findings)
    kept = 0
    for index, container in enumerate(pod.spec.containers):
        record = status.newest(container.name)
        if record is None or record.state is not RuntimeContainerState.RUNNING:
            if should_restart(container, pod, record, restart_all=restart_all):
                start.append(index)
                findings.append(_start_finding(pod, container, record))
                # Unknown may mean that it still runs: two instances of one container must never run at once.
                if record is not None and record.state is RuntimeContainerState.UNKNOWN:
                    message = 'Container is in "unknown" state, try killing it before restart'
                    kill.append(ContainerKill(id=record.id, name=container.name, message=message))
            continue
        verdict = _judge_running(pod, container, record, probes)
        if verdict is None:
            kept += 1
            continue
        kill.append(verdict.kill)
        if verdict.restart:
            start.append(index)
        findings.append(_finding(pod, Reason.KILL_CONTAINER, verdict.kill.message, container=container.name))
    if not kept and not start:
        # Upstream: no regular container runs or will run. Sidecars must not keep such a pod alive.
        done = _finding(pod, Reason.KILL_POD, "no container is running and none is to be started")
        return replace(actions, kill_pod=True, start_init=(), kill=tuple(kill), findings=(*findings, done))
    return replace(actions, start=tuple(start), kill=tuple(kill), findings=tuple(findings))


class _Verdict(Struct, frozen=True):
    kill: ContainerKill
    restart: bool


def _judge_running(pod: Pod, container: Container, record: ContainerRecord, probes: ProbeView) -> _Verdict | None:
    """Return why a running container must be killed; None to keep it."""
    restart = effective_policy(container, pod) != NEVER
    reason = KillReason.UNKNOWN
    if record.spec_hash != container_hash(container):
        message = f"Container {container.name} definition changed"
        restart = True  # as upstream, whatever the restart policy: a new definition has never run
    elif probes.get(ProbeKey(record.id, ProbeKind.LIVENESS)) is ProbeResult.FAILURE:
        message = f"Container {container.name} failed liveness probe"
        reason = KillReason.LIVENESS_PROBE
    elif probes.get(ProbeKey(record.id, ProbeKind.STARTUP)) is ProbeResult.FAILURE:
        message = f"Container {container.name} failed startup probe"
        reason = KillReason.STARTUP_PROBE
    else:
        return None
    if restart:
        message += ", will be restarted"
    return _Verdict(ContainerKill(id=record.id, name=container.name, message=message, reason=reason), restart)


def _init_kill(container: ContainerId, name: str, message: str, probe: ProbeKind | None) -> ContainerKill:
    reasons = {ProbeKind.STARTUP: KillReason.STARTUP_PROBE, ProbeKind.LIVENESS: KillReason.LIVENESS_PROBE}
    reason = reasons.get(probe, KillReason.UNKNOWN) if probe else KillReason.UNKNOWN
    return ContainerKill(id=container, name=name, message=message, reason=reason)


def _init_findings(pod: Pod, init: InitPlan) -> tuple[Finding, ...]:
    names = [pod.spec.init_containers[index].name for index in init.start]
    findings = [_finding(pod, Reason.START_INIT_CONTAINER, INIT_REASON, container=name) for name in names]
    if init.kill_pod:
        findings.append(_finding(pod, Reason.KILL_POD, init.why))
    return tuple(findings)


def _start_finding(pod: Pod, container: Container, record: ContainerRecord | None) -> Finding:
    if record is None:
        return _finding(pod, Reason.START_CONTAINER, "it has not run in this sandbox yet", container=container.name)
    why = f"it is {record.state} and the restart policy is {effective_policy(container, pod)}"
    measured: dict[str, str | int] = {"exitCode": record.exit_code, "restarts": record.restart_count}
    return Finding(
        subject=subject_of(pod, container.name),
        decider=DECIDER,
        decision=Reason.RESTART_CONTAINER,
        message=why,
        measurements=measured,
        since=record.finished_at,
    )


def _finding(
    pod: Pod, decision: Reason, why: str, *, container: str = "", attempt: int | None = None, next_step: str = ""
) -> Finding:
    return Finding(
        subject=subject_of(pod, container),
        decider=DECIDER,
        decision=decision,
        message=why,
        measurements={} if attempt is None else {"attempt": attempt},
        next=next_step,
    )
