"""Computes a pod's API status from its spec, the runtime status and what was reported before (generateAPIPodStatus)."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from klet.api.container import Container
from klet.api.container_status import ContainerStatus
from klet.api.handlers import Probe
from klet.api.pod import HostIP, Pod, PodCondition, PodIP, PodStatus
from klet.api.pod_resources import is_sidecar
from klet.model.allocation import PodResources
from klet.model.conditions import FALSE, READY, TRUE
from klet.model.features import DEFAULT_FEATURES, PodFeatures
from klet.model.network import ip_family, order_ips
from klet.model.pods import is_static
from klet.model.probes import ProbeKey, ProbeKind, ProbeView
from klet.model.readiness import ProbeFacts, is_older_than_agent, is_ready, is_started
from klet.model.restart_rules import ALL_RESTARTING, may_restart_all, should_restart_all
from klet.model.runtime import ContainerId, PodRuntimeStatus, StartFailure
from klet.status import conditions
from klet.status.containers import StatusFeatures, build_container_statuses, cut_messages, overlay_waiting
from klet.status.phase import FAILED, RestartRule, compute_phase, is_terminal
from klet.status.transitions import keeps_its_end

DEADLINE_EXCEEDED = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class PodStatusInputs(Struct, frozen=True, kw_only=True):
    """Everything a status is computed from, besides the pod and its runtime status."""

    previous: PodStatus
    resources: PodResources
    """What the pod has been given, and what it runs with."""
    runtime_name: str
    qos_class: str
    restarts: RestartRule
    needs_sandbox: bool
    startable: frozenset[str] = frozenset()
    """Names of containers that the next sync would start."""
    failures: Mapping[str, StartFailure] = field(default_factory=dict)
    probes: ProbeView = field(default_factory=dict)
    probed: frozenset[tuple[str, ProbeKind]] | None = None
    """The probes that are being run, by container; None means all that the spec has."""
    agent_started: datetime | None = None
    """Containers that ran before keep what was reported of them until a probe answers."""
    ends_here: bool = False
    """True once the pod is known never to run again."""
    is_overdue: bool = False
    """The pod has been active for longer than it may."""
    prefer_ipv6: bool = False
    """Whether IPv6 is the primary family of the node."""
    features: PodFeatures = DEFAULT_FEATURES
    host_ips: tuple[str, ...] = ()
    """The node's addresses, at most one of each family; none are known without an API server."""


def generate_status(pod: Pod, seen: PodRuntimeStatus, inputs: PodStatusInputs) -> PodStatus:
    """Compute the status to report now. The board sets the times of condition changes."""
    previous = inputs.previous
    features = _status_features(pod, seen, inputs)

    def statuses(containers: Sequence[Container], before: Sequence[ContainerStatus]) -> tuple[ContainerStatus, ...]:
        built = build_container_statuses(
            pod,
            containers,
            seen,
            before,
            resources=inputs.resources,
            runtime_name=inputs.runtime_name,
            features=features,
        )
        waiting = overlay_waiting(
            built, inputs.failures, inputs.startable - _ended_for_good(pod, containers, built, inputs)
        )
        return _with_flags(pod, containers, waiting, before, inputs)

    init = statuses(pod.spec.init_containers, previous.init_container_statuses)
    init = tuple(
        _completed(container, status) for container, status in zip(pod.spec.init_containers, init, strict=True)
    )
    regular = statuses(pod.spec.containers, previous.container_statuses)
    ephemeral = overlay_waiting(
        build_container_statuses(
            pod,
            pod.spec.ephemeral_containers,
            seen,
            previous.ephemeral_container_statuses,
            resources=inputs.resources,
            runtime_name=inputs.runtime_name,
            features=features,
        ),
        inputs.failures,
        inputs.startable,
    )
    active = {record.name for record in seen.active_containers()}
    phase = compute_phase(
        pod,
        regular,
        init,
        is_initialized=any(container.name in active for container in pod.spec.containers),
        ends_here=inputs.ends_here and not is_static(pod),
        restarts=inputs.restarts,
        restart_all=inputs.features.restart_all,
    )
    phase = _settled_phase(pod, phase, previous)
    is_cut_off = inputs.is_overdue and not is_terminal(pod.status.phase)
    if is_cut_off:
        phase = FAILED
    unchanged = phase == previous.phase
    reason, message = (previous.reason, previous.message) if unchanged else ("", "")
    ips = order_ips(seen.ips, prefer_ipv6=inputs.prefer_ipv6) or _kept_ips(seen, previous)
    if pod.spec.host_network:
        ips = _with_host_ips(ips, inputs.host_ips)
    return PodStatus(
        phase=phase,
        reason=DEADLINE_EXCEEDED if is_cut_off else reason or (pod.status.reason if unchanged else ""),
        message=DEADLINE_MESSAGE if is_cut_off else message or (pod.status.message if unchanged else ""),
        conditions=_conditions(pod, seen, phase, regular, init, inputs),
        host_ip=inputs.host_ips[0] if inputs.host_ips else "",
        host_ips=tuple(HostIP(ip=ip) for ip in inputs.host_ips[:2]),
        pod_ip=ips[0] if ips else "",
        pod_ips=tuple(PodIP(ip=ip) for ip in ips),
        start_time=previous.start_time,
        qos_class=inputs.qos_class,
        init_container_statuses=cut_messages(pod, init),
        container_statuses=cut_messages(pod, sorted(regular, key=lambda status: status.name)),
        ephemeral_container_statuses=cut_messages(pod, sorted(ephemeral, key=lambda status: status.name)),
        observed_generation=pod.metadata.generation,
    )


def _status_features(pod: Pod, seen: PodRuntimeStatus, inputs: PodStatusInputs) -> StatusFeatures:
    restart_all = inputs.features.restart_all
    return StatusFeatures(
        stop_signals=inputs.features.stop_signals,
        restart_all=restart_all,
        is_restarting=restart_all and should_restart_all(pod, seen, inputs.previous),
    )


def _ended_for_good(
    pod: Pod, containers: Sequence[Container], statuses: Sequence[ContainerStatus], inputs: PodStatusInputs
) -> frozenset[str]:
    """Keep ended containers as ended: a new sandbox may start them again, but the API accepts no such status."""
    return frozenset(
        container.name
        for container, status in zip(containers, statuses, strict=True)
        if keeps_its_end(pod, container, status, inputs.restarts, restart_all=inputs.features.restart_all)
    )


def _kept_ips(seen: PodRuntimeStatus, previous: PodStatus) -> tuple[str, ...]:
    """Return the addresses; a pod without a live sandbox still shows those it had."""
    return () if any(sandbox.ready for sandbox in seen.sandboxes) else tuple(each.ip for each in previous.pod_ips)


def _with_host_ips(ips: tuple[str, ...], host_ips: tuple[str, ...]) -> tuple[str, ...]:
    """Add the node's addresses to a pod on its network; one that is set stays, one of the other family may be added."""
    ips = ips or host_ips[:1]
    families = {ip_family(ip) for ip in ips}
    return ips + tuple(ip for ip in host_ips[1:2] if len(ips) == 1 and ip_family(ip) not in families)


def _settled_phase(pod: Pod, phase: str, previous: PodStatus) -> str:
    """Return the phase; a terminal one that was reported never changes."""
    if is_terminal(pod.status.phase):
        return pod.status.phase
    if not is_terminal(phase) and is_terminal(previous.phase):
        return previous.phase
    return phase


def _with_flags(
    pod: Pod,
    containers: Sequence[Container],
    statuses: Sequence[ContainerStatus],
    before: Sequence[ContainerStatus],
    inputs: PodStatusInputs,
) -> tuple[ContainerStatus, ...]:
    """Set `started` and `ready` from the state and the probes."""
    # An instance that was reported before stays started; a new one under the same name has to start for itself.
    reported = {status.container_id: status for status in before if status.container_id}
    names = {status.name for status in reported.values()}
    was_pod_ready = _was_pod_ready(pod, inputs.previous)
    flagged = []
    for container, status in zip(containers, statuses, strict=True):
        known = reported.get(status.container_id)
        # If another instance was reported, the pod was ready with that one.
        was_ready = was_pod_ready and (known is not None or container.name not in names)
        facts = _probe_facts(container, status, inputs, reported=known, was_pod_ready=was_ready)
        started = status.state.running is not None and is_started(facts)
        flagged.append(replace(status, started=started, ready=started and is_ready(facts)))
    return tuple(flagged)


def _probe_facts(
    container: Container,
    status: ContainerStatus,
    inputs: PodStatusInputs,
    *,
    reported: ContainerStatus | None,
    was_pod_ready: bool,
) -> ProbeFacts:
    instance = ContainerId(status.container_id.rpartition("://")[2])
    running = status.state.running

    def is_probed(kind: ProbeKind, probe: Probe | None) -> bool:
        return probe is not None if inputs.probed is None else (container.name, kind) in inputs.probed

    return ProbeFacts(
        startup=inputs.probes.get(ProbeKey(instance, ProbeKind.STARTUP)),
        readiness=inputs.probes.get(ProbeKey(instance, ProbeKind.READINESS)),
        has_startup_worker=is_probed(ProbeKind.STARTUP, container.startup_probe),
        has_readiness_worker=is_probed(ProbeKind.READINESS, container.readiness_probe),
        has_readiness_probe=container.readiness_probe is not None,
        was_started=reported is not None and bool(reported.started),
        was_ready=_was_ready(reported),
        is_older=running is not None and is_older_than_agent(running.started_at, inputs.agent_started),
        was_pod_ready=was_pod_ready,
    )


def _was_ready(reported: ContainerStatus | None) -> bool | None:
    """Return None for an instance that was not running when it was last reported."""
    return reported.ready if reported is not None and reported.state.running is not None else None


def _was_pod_ready(pod: Pod, previous: PodStatus) -> bool:
    """Return whether the pod was ready by the API server's status, or else by what was reported last."""
    for status in (pod.status, previous):
        for condition in status.conditions:
            if condition.type == READY:
                return condition.status == TRUE
    return False


def _completed(container: Container, status: ContainerStatus) -> ContainerStatus:
    """Return whether a plain init container is ready: once it has succeeded, and never while it runs."""
    if is_sidecar(container):
        return status
    terminated = status.state.terminated
    return replace(status, ready=terminated is not None and terminated.exit_code == 0)


def _conditions(
    pod: Pod,
    seen: PodRuntimeStatus,
    phase: str,
    regular: Sequence[ContainerStatus],
    init: Sequence[ContainerStatus],
    inputs: PodStatusInputs,
) -> tuple[PodCondition, ...]:
    restart_all = inputs.features.restart_all
    foreign = _foreign_conditions(pod, inputs.previous, inputs.features)
    ready_to_start = tuple[PodCondition, ...]()
    if inputs.features.ready_to_start:
        has_sandbox = FALSE if inputs.needs_sandbox else TRUE
        ready_to_start = (PodCondition(type=conditions.READY_TO_START, status=has_sandbox),)
    containers = conditions.containers_ready(pod, (*init, *regular), phase)
    stays = restart_all and _is_true(inputs.previous, conditions.INITIALIZED)
    initialized = conditions.initialized(pod, regular, init, phase, stays=stays)
    owned = (
        *ready_to_start,
        initialized,
        # A readiness gate may name any condition that is known by now.
        conditions.ready(pod, containers, (*foreign, *ready_to_start, initialized)),
        containers,
        PodCondition(type=conditions.POD_SCHEDULED, status=TRUE),
    )
    generation = pod.metadata.generation
    dated = tuple(replace(condition, observed_generation=generation) for condition in owned)
    if not restart_all or not may_restart_all(pod.spec):
        return (*foreign, *dated)
    # Upstream gives this one no generation.
    return (*foreign, *dated, conditions.all_containers_restarting(pod, seen, inputs.previous, phase))


def _is_true(status: PodStatus, kind: str) -> bool:
    return any(condition.type == kind and condition.status == TRUE for condition in status.conditions)


def _foreign_conditions(pod: Pod, previous: PodStatus, features: PodFeatures) -> tuple[PodCondition, ...]:
    """Return the conditions of other clients; DisruptionTarget of the node stays, too.

    A condition whose gate is off is not computed here: an existing one stays as it is.
    """
    gated = {ALL_RESTARTING: features.restart_all, conditions.READY_TO_START: features.ready_to_start}
    owned = conditions.OWNED - {kind for kind, is_on in gated.items() if not is_on}
    foreign = {condition.type: condition for condition in pod.status.conditions if condition.type not in owned}
    kept = {condition.type: condition for condition in previous.conditions if condition.type in conditions.SHARED}
    return tuple((foreign | kept).values())
