"""Rules for a whole KubeletConfiguration, in upstream's order and with upstream's texts.

The result is every problem at once, so that one start shows them all.
"""

import posixpath
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final, TypeAlias

from klet.api.placement import Taint
from klet.api.times import Duration
from klet.api.validation.formats import label_key, label_value
from klet.config.configuration import KubeletConfiguration
from klet.config.gates import FeatureGates, find_gate_problems
from klet.config.image_policy import find_image_policy_problems
from klet.config.observability import find_hidden_metrics_problems, find_logging_problems, find_tracing_problems
from klet.config.reserved import find_reserved_cpu_problems, find_reserved_memory_problems
from klet.config.sections import LIMITED_SWAP

Problems: TypeAlias = Iterator[str]

PREFIX: Final = "invalid configuration: "
CGROUP_V1_REFUSED: Final = (
    "kubelet is configured to not run on a host using cgroup v1. "
    "cgroup v1 support is unsupported and will be removed in a future release: "
    "set failCgroupV1 (--fail-cgroupv1) to false to run on it all the same"
)

_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_ZERO: Final = timedelta()
_MAX_PORT: Final = 65535
_ID_BLOCK: Final = 65536
_MAX_ID: Final = 2**32 - 1
_TOPOLOGY_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
_HAIRPIN_MODES: Final = ("promiscuous-bridge", "hairpin-veth", "none")
_ENFORCE: Final = "enforceNodeAllocatable (--enforce-node-allocatable)"
_CRASH_LOOP_GATE: Final = "KubeletCrashLoopBackOffMax"
_MAX_RESTART_PERIOD: Final = timedelta(seconds=300)
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_configuration(config: KubeletConfiguration, gates: FeatureGates, *, cgroup_v1: bool) -> tuple[str, ...]:
    """Name every broken rule; none means that the configuration is good."""
    gate_problems = tuple(find_gate_problems(config.feature_gates))
    if gate_problems:
        return gate_problems
    return (
        *_prefixed(_node(config), _numbers(config), _cpu_quota(config, gates), _images(config), _ports(config, gates)),
        *_taints(config.register_with_taints),
        *_prefixed(_topology(config), _shutdown(config, gates), _swap(config), _crash_loop(config, gates)),
        *_prefixed(_enforcement(config), _hairpin(config), find_image_policy_problems(config, gates)),
        *_prefixed(_reserved(config)),
        *_first(_operating_system(config, cgroup_v1=cgroup_v1)),
        *find_hidden_metrics_problems(config.show_hidden_metrics_for_version),
        *find_logging_problems(config.logging, gates),
        *find_tracing_problems(config.tracing),
        *_prefixed(_memory_throttling(config), _runtime(config), _log_query(config, gates)),
        *_prefixed(_container_logs(config), _pod_logs(config)),
    )


def _prefixed(*groups: Problems) -> Problems:
    for group in groups:
        for problem in group:
            yield f"{PREFIX}{problem}"


def _first(problems: Problems) -> Problems:
    for problem in problems:
        yield problem
        return


def _node(config: KubeletConfiguration) -> Problems:
    if config.node_lease_duration_seconds <= 0:
        yield "nodeLeaseDurationSeconds must be greater than 0"
    if config.system_cgroups and not config.cgroup_root:
        yield "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not specified"


_NOT_NEGATIVE: Final[tuple[tuple[str, Callable[[KubeletConfiguration], int]], ...]] = (
    ("eventBurst (--event-burst)", lambda config: config.event_burst),
    ("eventRecordQPS (--event-qps)", lambda config: config.event_record_qps),
    ("kubeAPIBurst (--kube-api-burst)", lambda config: config.kube_api_burst),
    ("kubeAPIQPS (--kube-api-qps)", lambda config: config.kube_api_qps),
    ("maxOpenFiles (--max-open-files)", lambda config: config.max_open_files),
    ("maxPods (--max-pods)", lambda config: config.max_pods),
    ("podsPerCore (--pods-per-core)", lambda config: config.pods_per_core),
    ("registryBurst (--registry-burst)", lambda config: config.registry_burst),
    ("registryPullQPS (--registry-qps)", lambda config: config.registry_pull_qps),
)


def _numbers(config: KubeletConfiguration) -> Problems:
    for name, read in _NOT_NEGATIVE:
        if (value := read(config)) < 0:
            yield f"{name} {value} must not be a negative number"
    if not 0 <= config.healthz_port <= _MAX_PORT:
        yield f"healthzPort (--healthz-port) {config.healthz_port} must be between 1 and 65535, inclusive"


def _cpu_quota(config: KubeletConfiguration, gates: FeatureGates) -> Problems:
    period = config.cpu_cfs_quota_period
    shown = f"cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {_braced(period)}"
    if not gates.enabled("CustomCPUCFSQuotaPeriod"):
        if period != 100 * _MILLISECOND:
            yield f"{shown} requires feature gate CustomCPUCFSQuotaPeriod"
    elif not _MILLISECOND <= period <= _SECOND:
        yield f"{shown} must be between 1ms and 1sec, inclusive"


def _images(config: KubeletConfiguration) -> Problems:
    high, low = config.image_gc_high_threshold_percent, config.image_gc_low_threshold_percent
    high_name = "imageGCHighThresholdPercent (--image-gc-high-threshold)"
    low_name = "imageGCLowThresholdPercent (--image-gc-low-threshold)"
    for name, value in ((high_name, high), (low_name, low)):
        if not 0 <= value <= 100:
            yield f"{name} {value} must be between 0 and 100, inclusive"
    if low >= high:
        yield f"{low_name} {low} must be less than {high_name} {high}"
    maximum, minimum = config.image_maximum_gc_age, config.image_minimum_gc_age
    if maximum < _ZERO:
        yield f"imageMaximumGCAge {_plain(maximum)} must not be negative"
    elif _ZERO < maximum <= minimum:
        yield f"imageMaximumGCAge {_plain(maximum)} must be greater than imageMinimumGCAge {_plain(minimum)}"


def _ports(config: KubeletConfiguration, gates: FeatureGates) -> Problems:
    for name, bit in (
        ("iptablesDropBit (--iptables-drop-bit)", config.iptables_drop_bit),
        ("iptablesMasqueradeBit (--iptables-masquerade-bit)", config.iptables_masquerade_bit),
    ):
        if not 0 <= bit <= 31:
            yield f"{name} {bit} must be between 0 and 31, inclusive"
    if config.node_status_max_images < -1:
        yield f"nodeStatusMaxImages (--node-status-max-images) {config.node_status_max_images} must be -1 or greater"
    if not -1000 <= config.oom_score_adj <= 1000:
        yield f"oomScoreAdj (--oom-score-adj) {config.oom_score_adj} must be between -1000 and 1000, inclusive"
    if not 1 <= config.port <= _MAX_PORT:
        yield f"port (--port) {config.port} must be between 1 and 65535, inclusive"
    if not 0 <= config.read_only_port <= _MAX_PORT:
        yield f"readOnlyPort (--read-only-port) {config.read_only_port} must be between 0 and 65535, inclusive"
    yield from _parallel_pulls(config)
    if config.server_tls_bootstrap and not gates.enabled("RotateKubeletServerCertificate"):
        yield "serverTLSBootstrap true requires feature gate RotateKubeletServerCertificate"
    if config.run_once:
        yield "runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set"


def _parallel_pulls(config: KubeletConfiguration) -> Problems:
    pulls = config.max_parallel_image_pulls
    if pulls is not None and pulls < 1:
        yield f"maxParallelImagePulls {pulls} must be a positive number"
    if pulls is not None and pulls > 1 and config.serialize_image_pulls:
        yield (
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) "
            "is set to false"
        )


def _taints(taints: tuple[Taint, ...]) -> Problems:
    for taint in taints:
        is_bad = label_key(taint.key) or label_value(taint.value) or taint.effect not in _EFFECTS
        if is_bad:
            added = taint.time_added.wire() if taint.time_added else "<nil>"
            yield f"invalid taint: {{{taint.key} {taint.value} {taint.effect} {added}}}"
        if taint.time_added is not None:
            yield f"{PREFIX}taint.TimeAdded is not nil"


def _topology(config: KubeletConfiguration) -> Problems:
    if config.topology_manager_policy not in _TOPOLOGY_POLICIES:
        allowed = " ".join(f'"{name}"' for name in _TOPOLOGY_POLICIES)
        shown = f'topologyManagerPolicy (--topology-manager-policy) "{config.topology_manager_policy}"'
        yield f"{shown} must be one of: [{allowed}]"
    if config.topology_manager_scope not in ("container", "pod"):
        shown = f'topologyManagerScope (--topology-manager-scope) "{config.topology_manager_scope}"'
        yield f'{shown} must be one of: "container", or "pod"'


def _shutdown(config: KubeletConfiguration, gates: FeatureGates) -> Problems:
    total, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    is_set = total > _ZERO or critical > _ZERO
    if gates.enabled("GracefulNodeShutdown"):
        if critical > total:
            yield f"shutdownGracePeriodCriticalPods {_braced(critical)} must be <= shutdownGracePeriod {_braced(total)}"
        for name, period in (("shutdownGracePeriod", total), ("shutdownGracePeriodCriticalPods", critical)):
            if period != _ZERO and period < _SECOND:
                yield f"{name} {_braced(period)} must be either zero or otherwise >= 1 sec"
    elif is_set:
        yield (
            "specifying shutdownGracePeriod or shutdownGracePeriodCriticalPods requires feature gate "
            "GracefulNodeShutdown"
        )
    if not config.shutdown_grace_period_by_pod_priority:
        return
    if not gates.enabled("GracefulNodeShutdownBasedOnPodPriority"):
        gate = "GracefulNodeShutdownBasedOnPodPriority"
        yield f"Specifying shutdownGracePeriodByPodPriority requires feature gate {gate}"
    elif is_set:
        yield "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time"


def _swap(config: KubeletConfiguration) -> Problems:
    behavior = config.memory_swap.swap_behavior
    if behavior not in ("", LIMITED_SWAP, "NoSwap"):
        yield f'memorySwap.swapBehavior "{behavior}" must be one of: "", "LimitedSwap" or "NoSwap"'


def _crash_loop(config: KubeletConfiguration, gates: FeatureGates) -> Problems:
    period = config.crash_loop_back_off.max_container_restart_period
    name = "CrashLoopBackOff.MaxContainerRestartPeriod"
    if not gates.enabled(_CRASH_LOOP_GATE):
        if period is not None:
            yield f"FeatureGate {_CRASH_LOOP_GATE} not enabled, {name} must not be set"
    elif period is None:
        yield f"FeatureGate {_CRASH_LOOP_GATE} is enabled, {name} must be set"
    elif not _SECOND <= _whole_milliseconds(period) <= _MAX_RESTART_PERIOD:
        yield f"{name} (got: {_number(period.total_seconds())} seconds) must be set between 1s and 300s"


def _enforcement(config: KubeletConfiguration) -> Problems:
    levels = config.enforce_node_allocatable
    for level in ("system-reserved", "kube-reserved"):
        if level in levels and f"{level}-compressible" in levels:
            yield f'both "{level}" and "{level}-compressible" cannot be specified together in {_ENFORCE}'
    seen: set[str] = set()
    for level in levels:
        if level in seen:
            yield f'duplicated enforcements "{level}" in {_ENFORCE}'
            continue
        seen.add(level)
        if level == "none":
            if len(levels) > 1:
                yield f'{_ENFORCE} may not contain additional enforcements when "none" is specified'
            continue
        yield from _enforcement_level(config, level)
        if not config.cgroups_per_qos:
            yield f'cgroupsPerQOS (--cgroups-per-qos) must be set to true when "{level}" contained in {_ENFORCE}'


def _enforcement_level(config: KubeletConfiguration, level: str) -> Problems:
    match level:
        case "pods":
            pass
        case "system-reserved" | "system-reserved-compressible":
            if not config.system_reserved_cgroup:
                yield _cgroup_needed("systemReservedCgroup (--system-reserved-cgroup)", "system-reserved")
        case "kube-reserved" | "kube-reserved-compressible":
            if not config.kube_reserved_cgroup:
                yield _cgroup_needed("kubeReservedCgroup (--kube-reserved-cgroup)", "kube-reserved")
        case _:
            yield (
                f'option "{level}" specified for {_ENFORCE}. Valid options are "pods", "system-reserved", '
                '"system-reserved-compressible", "kube-reserved", "kube-reserved-compressible" or "none"'
            )


def _cgroup_needed(name: str, level: str) -> str:
    return f'{name} must be specified when "{level}" or "{level}-compressible" included in {_ENFORCE}'


def _hairpin(config: KubeletConfiguration) -> Problems:
    if config.hairpin_mode not in _HAIRPIN_MODES:
        yield (
            f'option "{config.hairpin_mode}" specified for hairpinMode (--hairpin-mode). '
            'Valid options are "none", "hairpin-veth" or "promiscuous-bridge"'
        )


def _reserved(config: KubeletConfiguration) -> Problems:
    cgroups = (config.system_reserved_cgroup, config.kube_reserved_cgroup)
    yield from find_reserved_cpu_problems(config.reserved_system_cpus, cgroups=cgroups)
    yield from find_reserved_memory_problems(config.reserved_memory)


def _operating_system(config: KubeletConfiguration, *, cgroup_v1: bool) -> Problems:
    if cgroup_v1 and config.fail_cgroup_v1:
        yield CGROUP_V1_REFUSED
    if cgroup_v1 and config.single_process_oom_kill is False:
        yield f"{PREFIX}singleProcessOOMKill must not be explicitly set to false when using cgroup v1"
    ids = config.user_namespaces.ids_per_pod
    if ids < _ID_BLOCK:
        yield f"{PREFIX}userNamespaces.idsPerPod must not be less than {_ID_BLOCK}"
    if ids % _ID_BLOCK:
        yield f"{PREFIX}userNamespaces.idsPerPod must be a multiple of {_ID_BLOCK}"
    if ids > _MAX_ID:
        yield f"{PREFIX}userNamespaces.idsPerPod must not be more than {_MAX_ID}"


def _memory_throttling(config: KubeletConfiguration) -> Problems:
    factor = config.memory_throttling_factor
    if not 0 < factor <= 1:
        yield f"memoryThrottlingFactor {_number(factor)} must be greater than 0 and less than or equal to 1.0"


def _runtime(config: KubeletConfiguration) -> Problems:
    if not config.container_runtime_endpoint:
        yield "the containerRuntimeEndpoint was not specified or empty"


def _log_query(config: KubeletConfiguration, gates: FeatureGates) -> Problems:
    if config.enable_system_log_query and not gates.enabled("NodeLogQuery"):
        yield "NodeLogQuery feature gate is required for enableSystemLogQuery"
    if config.enable_system_log_query and not config.enable_system_log_handler:
        yield "enableSystemLogHandler is required for enableSystemLogQuery"


def _container_logs(config: KubeletConfiguration) -> Problems:
    if config.container_log_max_workers < 1:
        yield "containerLogMaxWorkers must be greater than or equal to 1"
    if config.container_log_monitor_interval < 3 * _SECOND:
        yield "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s"
    if config.container_log_max_files <= 1:
        yield "containerLogMaxFiles must be greater than 1"


def _pod_logs(config: KubeletConfiguration) -> Problems:
    path = config.pod_logs_dir
    if not path:
        yield "podLogsDir was not specified"
        return
    if not path.startswith("/"):
        yield f'pod logs path "{path}" must be absolute path'
    if path != posixpath.normpath(path) or path.startswith("//"):
        yield f'pod logs path "{path}" must be normalized'
    if not path.isascii():
        yield f'pod logs path "{path}" mut contains ASCII characters only'


def _plain(length: timedelta) -> str:
    return Duration.of(length).wire()


def _braced(length: timedelta) -> str:
    return f"{{{_plain(length)}}}"


def _whole_milliseconds(length: timedelta) -> timedelta:
    return length // _MILLISECOND * _MILLISECOND


def _number(value: float) -> str:
    """Return a number as Go prints it: no trailing `.0`."""
    return str(int(value)) if value.is_integer() else repr(value)
