"""Metrics of pods and of their workers."""

from typing import Final

from msgspec import Struct

from klet.api.pod import Pod
from klet.metrics import DEFAULT_BOUNDS, Counter, FewValues, Gauge, Histogram, Label, MetricRegistry, Reading
from klet.model.pods import is_static, uid_of
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.status.phase import is_terminal
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage, WorkerState

START_BOUNDS: Final = (
    *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700),
    3600,
)
REJECTIONS: Final = frozenset(
    {
        "AppArmor",
        "Evicted",
        "InitContainerRestartPolicyForbidden",
        "InvalidNodeInfo",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfephemeral-storage",
        "OutOfmemory",
        "OutOfpods",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "UnexpectedPredicateFailureType",
        "UnknownReason",
        "VolumeAttachmentLimitExceeded",
    }
)
"""Those that upstream counts by themselves: NodeAffinity, NodePorts and TaintToleration are not among them."""
EXTENDED: Final = "OutOfExtendedResources"
OTHER_REASON: Final = "Other"
STEPS: Final = frozenset({"network", "objects", "cgroup", "directories", "volumes", "pull_secrets"})
_STATIC: Final = Label("static", frozenset({"", "true"}))
_LIFECYCLES: Final = {
    Stage.ADMITTING: "sync",
    Stage.SYNCING: "sync",
    Stage.TERMINATING: "terminating",
    Stage.TERMINATED: "terminated",
    Stage.FINISHED: "terminated",
}


class PodWorkerMetrics(Struct, frozen=True, kw_only=True):
    """How long the steps of pods take, and how long a pod takes to run."""

    duration: Histogram
    first_step: Histogram
    start: Histogram
    containers: Histogram


class AdmissionMetrics(Struct, frozen=True, kw_only=True):
    """Pods that were rejected, and pods that had to go for others."""

    rejections: Counter
    preemptions: Counter


class StartupMetrics(Struct, frozen=True, kw_only=True):
    """How long pods take to start, as the users of the API server see it."""

    whole: Histogram
    own: Histogram
    first_with_network: Gauge


class HousekeepingMetrics(Struct, frozen=True, kw_only=True):
    """Pods that came back with their UID, and pods that only the runtime had."""

    restarted: Counter
    orphaned: Counter
    kept: Gauge
    kept_failed: Gauge


def register_pod_workers(registry: MetricRegistry) -> PodWorkerMetrics:
    operations = Label("operation_type", frozenset({"create", "update", "sync", "kill", "terminated"}))
    return PodWorkerMetrics(
        duration=registry.histogram(
            "kubelet_pod_worker_duration_seconds",
            "How long one step of a pod took, by what led to it.",
            DEFAULT_BOUNDS,
            (operations,),
        ),
        first_step=registry.histogram(
            "kubelet_pod_worker_start_duration_seconds",
            "From the moment the agent saw a pod to its first sync.",
            DEFAULT_BOUNDS,
        ),
        start=registry.histogram(
            "kubelet_pod_start_duration_seconds",
            "From the moment the agent saw a pod to the moment it saw it run.",
            START_BOUNDS,
        ),
        containers=registry.histogram(
            "kubelet_containers_per_pod_count", "Containers of each pod, without init containers.", (1, 2, 4, 8, 16)
        ),
    )


def register_admission(registry: MetricRegistry) -> AdmissionMetrics:
    reasons = Label("reason", REJECTIONS | {EXTENDED, OTHER_REASON})
    return AdmissionMetrics(
        rejections=registry.counter(
            "kubelet_admission_rejections_total", "Pods that the node rejected, by the reason.", (reasons,)
        ),
        preemptions=registry.counter(
            "kubelet_preemptions",
            "Pods that were stopped for a critical pod, by what there was too little of.",
            (FewValues("preemption_signal", 32),),
        ),
    )


def register_preparation(registry: MetricRegistry) -> Histogram:
    return registry.histogram(
        "klet_pod_preparation_step_duration_seconds",
        "How long each step took that gives a pod what its containers need, in every pass that starts something.",
        DEFAULT_BOUNDS,
        (Label("step", STEPS),),
        promise=None,
    )


def register_startups(registry: MetricRegistry) -> StartupMetrics:
    return StartupMetrics(
        whole=registry.histogram(
            "kubelet_pod_start_total_duration_seconds",
            "From the creation of a pod to the moment the API server shows that it runs.",
            START_BOUNDS,
        ),
        own=registry.histogram(
            "kubelet_pod_start_sli_duration_seconds",
            "The same, without pulls of images and init containers; pods with state do not count.",
            START_BOUNDS,
        ),
        first_with_network=registry.gauge(
            "kubelet_first_network_pod_start_sli_duration_seconds",
            "The same of the first pod with a network of its own.",
        ),
    )


def register_housekeeping(registry: MetricRegistry) -> HousekeepingMetrics:
    restarted = registry.counter(
        "kubelet_restarted_pods_total", "Pods that were removed and came back with the same UID.", (_STATIC,)
    )
    # As upstream, both series are there from the start.
    for static in sorted(_STATIC.values):
        restarted.add(static, by=0)
    return HousekeepingMetrics(
        restarted=restarted,
        orphaned=registry.counter(
            "kubelet_orphaned_runtime_pods_total", "Pods that ran in the runtime without being wanted by any source."
        ),
        kept=registry.gauge(
            "kubelet_orphan_pod_cleaned_volumes", "Pods without a source that the latest pass began to remove."
        ),
        kept_failed=registry.gauge(
            "kubelet_orphan_pod_cleaned_volumes_errors", "Pods without a source that could not be removed so far."
        ),
    )


def register_pods(registry: MetricRegistry, pods: PodStore, ledger: WorkerLedger, statuses: StatusBoard) -> None:
    """Register how many pods there are; they are counted at a scrape."""

    def desired() -> Reading:
        counts: dict[tuple[str, ...], float] = {("",): 0, ("true",): 0}
        for pod in pods.all():
            counts[(static_label(pod),)] += 1
        return counts

    def active() -> Reading:
        counts: dict[tuple[str, ...], float] = {("",): 0, ("true",): 0}
        for pod in pods.all():
            state, status = ledger.get(uid_of(pod)), statuses.get(uid_of(pod))
            has_ended = is_terminal(pod.status.phase) or (status is not None and is_terminal(status.phase))
            if not has_ended and not (state is not None and state.has_stopped):
                counts[(static_label(pod),)] += 1
        return counts

    def working() -> Reading:
        wanted = pods.uids()
        counts: dict[tuple[str, ...], float] = {
            (lifecycle, config, static): 0
            for lifecycle in ("sync", "terminating", "terminated")
            for config, static in (
                *((config, static) for config in ("desired", "orphan") for static in ("", "true")),
                ("runtime_only", "unknown"),
            )
        }
        for uid, state in ledger.all().items():
            counts[_working_labels(state, is_wanted=uid in wanted)] += 1
        return counts

    def ephemeral() -> Reading:
        return {(): sum(len(pod.spec.ephemeral_containers) for pod in pods.all())}

    registry.computed("kubelet_desired_pods", "Pods that the sources want.", desired, (_STATIC,))
    registry.computed("kubelet_active_pods", "Pods that are wanted and have not ended.", active, (_STATIC,))
    registry.computed("kubelet_mirror_pods", "Mirror pods at the API server.", lambda: {(): len(pods.mirrors())})
    registry.computed(
        "kubelet_working_pods",
        "Pods that the agent works on, by stage, by whether a source wants them, and by kind.",
        working,
        (
            Label("lifecycle", frozenset({"sync", "terminating", "terminated"})),
            Label("config", frozenset({"desired", "orphan", "runtime_only"})),
            Label("static", frozenset({"", "true", "unknown"})),
        ),
    )
    registry.computed("kubelet_managed_ephemeral_containers", "Ephemeral containers of pods.", ephemeral)


def static_label(pod: Pod) -> str:
    """Return upstream's word for whether a pod is static."""
    return "true" if is_static(pod) else ""


def rejection_label(reason: str) -> str:
    """Return the label of a rejection: resources of vendors have any name, so all of them share one."""
    if reason in REJECTIONS:
        return reason
    return EXTENDED if reason.startswith("OutOf") else OTHER_REASON


def _working_labels(state: WorkerState, *, is_wanted: bool) -> tuple[str, ...]:
    lifecycle = _LIFECYCLES[state.stage]
    if state.is_runtime_only:
        return lifecycle, "runtime_only", "unknown"
    return lifecycle, "desired" if is_wanted else "orphan", static_label(state.pod)
