"""Cuts the configuration into one small settings value for each part. Pure."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from klet.admission.declared_features import NOT_BUILT, discover_features
from klet.agent_log.start import LogSettings
from klet.agent_log.vmodule import VModuleRule
from klet.api.container import ContainerPort
from klet.api.quantity import Quantity
from klet.api.sysctls import normalize_sysctl
from klet.api.validation.options import STATIC_POD, PodValidationOptions
from klet.app.cgroup_settings import (
    NodeCgroupSettings,
    allocatable_memory,
    cpu_period,
    cut_node_cgroups,
    cut_pod_cgroup_rules,
    cut_qos_rules,
    has_memory_qos,
    is_unified,
)
from klet.config.command_line import Settings
from klet.config.configuration import KubeletConfiguration
from klet.config.credential_provider import CredentialProviders
from klet.config.errors import ConfigError
from klet.config.flags import choose_node_name
from klet.config.gates import FeatureGates
from klet.config.sections import LIMITED_SWAP
from klet.config.unusable import usable_servers
from klet.config.without_effect import GATES as GATES_WITHOUT_EFFECT
from klet.errors import KletError
from klet.host.cgroups.names import CgroupDriver, cgroup_path, parse_cgroupfs
from klet.host.machine.info import MachineInfo
from klet.images.gc_plan import ImageGcPolicy
from klet.images.pulled.verification import build_rules
from klet.images.settings import ImageSettings, choose_limits, choose_pulls_at_once
from klet.logs.rotation import LogRotationSettings
from klet.model.features import DEFAULT_FEATURES, PodFeatures
from klet.model.stats import SystemCgroups
from klet.network.dns import DnsSettings
from klet.node.capacity import machine_capacity
from klet.node.machine_checks import check_machine
from klet.node.settings import NodeSettings, cut_node_settings, cut_reservations
from klet.resources.cgroup_values import PodCgroupRules, QosRules
from klet.resources.cpu.settings import CpuManagerSettings, cut_cpu_manager_settings
from klet.resources.names import pods_root
from klet.resources.settings import (
    MemoryManagerSettings,
    check_topology_manager,
    cut_memory_manager_settings,
    cut_topology_rules,
)
from klet.resources.topology.rules import TopologyRules
from klet.runtime.config.container_config import ContainerSettings
from klet.runtime.config.id_blocks import UserIdSettings, choose_range
from klet.runtime.config.linux_resources import MemoryQosRules, ResourceRules, SwapRules
from klet.runtime.config.sandbox_config import SandboxSettings
from klet.runtime.config.security import SecuritySettings
from klet.runtime.crash_backoff import CrashBackoffLimits, choose_crash_backoff
from klet.runtime.gc_plan import GcPolicy
from klet.stats.collector import StatsSettings
from klet.volumes.labels import LabelRules

STARTS_PER_CPU = 4
"""Where many pods are up soonest: with fewer in flight the CPUs idle, with more the runtime gets slower for all."""
LONGEST_REQUEST = timedelta(days=365)
"""gRPC takes a deadline of more than two centuries for one that has passed."""
PREVENT_API_REFERENCES: Final = "PreventStaticPodAPIReferences"
_EVERY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to


class AgentSettings(Struct, frozen=True, kw_only=True):
    """What the composition root hands out."""

    node_name: str
    root: Path
    socket: Path
    journal: Path
    saved_state: Path
    boot: Path
    """Which boot of the machine the agent last ran in."""
    journal_records: int
    runtime_endpoint: str
    image_endpoint: str
    request_timeout: timedelta
    resync: timedelta
    crash_backoff: CrashBackoffLimits
    parallel_starts: int
    cgroup_root: str
    cgroup_driver: str
    cgroups_per_qos: bool
    pod_cgroups: PodCgroupRules
    qos: QosRules
    topology: TopologyRules = TopologyRules()
    cpu_manager: CpuManagerSettings = CpuManagerSettings()
    memory_manager: MemoryManagerSettings = MemoryManagerSettings()
    node_cgroups: NodeCgroupSettings = NodeCgroupSettings()
    resolv_conf: Path | None
    gc: GcPolicy
    image_gc: ImageGcPolicy = ImageGcPolicy()
    legacy_logs: Path
    """Where log collectors of the whole node find links to all logs."""
    sandbox: SandboxSettings
    container: ContainerSettings
    log_rotation: LogRotationSettings = field(default_factory=LogRotationSettings)
    stats: StatsSettings = field(default_factory=StatsSettings)
    volume_stats_period: timedelta = timedelta(minutes=1)
    """How often volumes are measured; not at all if it is not positive."""
    dns: DnsSettings
    user_ids: UserIdSettings
    node: NodeSettings
    """What the node says of itself, and has for pods."""
    runtime_handlers: Mapping[str, str]
    """By runtime class."""
    features: PodFeatures = DEFAULT_FEATURES
    allowed_sysctls: tuple[str, ...] = ()
    """Patterns of kernel parameters that pods may set besides the safe ones."""
    declared_features: tuple[str, ...] | None = None
    """What the node declares that it can do; None: it declares nothing, and pods are not checked for it."""
    own_ports: tuple[ContainerPort, ...] = ()
    """Where the agent listens, as host ports: no pod may have them."""
    images: ImageSettings = ImageSettings()
    has_image_volumes: bool = True
    volume_labels: LabelRules = LabelRules()
    flex_drivers: Path = Path("/nonexistent")
    """Where drivers of flexVolume are installed."""
    has_project_quotas: bool = False
    """Whether volumes are counted by project quotas where there are any."""
    has_pod_level_resources: bool = True
    tolerates_user_namespace: bool = False
    """Whether what a user namespace does not allow is left out (gate KubeletInUserNamespace)."""
    gates: FeatureGates = FeatureGates({})
    """For the metric that shows them; parts are given what they ask of one gate."""
    credential_providers: CredentialProviders | None = None
    """Which plugins give logins for images; None without any."""
    credential_provider_programs: Path = Path("/nonexistent")
    """Where those are."""
    shows_hidden_metrics: bool = False
    """Whether metrics that the previous release showed last are shown."""


def cut_settings(given: Settings, machine: MachineInfo) -> AgentSettings:
    """Choose what each part gets."""
    config, flags = given.config, given.flags
    root = Path(flags.root_dir)
    resources = cut_container_rules(given, machine)
    features = cut_features(given)
    name = choose_node_name(flags, hostname=machine.hostname)
    node = cut_node_settings(
        config,
        flags,
        name=name,
        architecture=machine.architecture,
        shows_proxy_version=not given.gates.enabled("DisableNodeKubeProxyVersion"),
        declared_features=cut_declared_features(given) or (),
    )
    return AgentSettings(
        node_name=name,
        root=root,
        socket=Path(given.klet.socket),
        journal=root / "klet-journal.db",
        saved_state=root / "klet-memory.json",
        boot=root / "klet-boot.json",
        journal_records=given.klet.journal_records,
        runtime_endpoint=config.container_runtime_endpoint,
        image_endpoint=config.image_service_endpoint,
        request_timeout=min(config.runtime_request_timeout, LONGEST_REQUEST),
        resync=config.sync_frequency,
        crash_backoff=choose_crash_backoff(
            is_reduced=given.gates.enabled("ReduceDefaultCrashLoopBackOffDecay"),
            configured=config.crash_loop_back_off.max_container_restart_period,
        ),
        parallel_starts=given.klet.max_parallel_starts or STARTS_PER_CPU * machine.agent_cpus,
        cgroup_root=config.cgroup_root,
        cgroup_driver=config.cgroup_driver,
        cgroups_per_qos=config.cgroups_per_qos,
        pod_cgroups=cut_pod_cgroup_rules(given, machine),
        qos=cut_qos_rules(given, machine),
        topology=cut_topology_rules(config, machine),
        cpu_manager=cut_cpu_manager(given, machine),
        memory_manager=cut_memory_manager_settings(config, machine, cut_kept_resources(given, machine)),
        node_cgroups=cut_node_cgroups(given, machine),
        resolv_conf=Path(config.resolv_conf) if config.resolv_conf else None,
        gc=GcPolicy(
            min_age=flags.minimum_container_ttl_duration,
            max_per_container=flags.maximum_dead_containers_per_container,
            max_containers=flags.maximum_dead_containers,
        ),
        image_gc=ImageGcPolicy(
            high=config.image_gc_high_threshold_percent,
            low=config.image_gc_low_threshold_percent,
            min_age=config.image_minimum_gc_age,
            max_age=config.image_maximum_gc_age,
        ),
        log_rotation=LogRotationSettings(
            max_size=Quantity.parse(config.container_log_max_size).value(),
            max_files=config.container_log_max_files,
            workers=config.container_log_max_workers,
            interval=config.container_log_monitor_interval,
        ),
        stats=StatsSettings(
            system=SystemCgroups(
                kubelet=config.kubelet_cgroups, runtime=flags.runtime_cgroups, misc=config.system_cgroups
            ),
            max_age=flags.housekeeping_interval,
            has_pressure=given.gates.enabled("KubeletPSI"),
        ),
        volume_stats_period=config.volume_stats_agg_period,
        legacy_logs=choose_legacy_logs(Path(config.pod_logs_dir)),
        sandbox=SandboxSettings(
            logs=Path(config.pod_logs_dir),
            cluster_domain=config.cluster_domain,
            resources=resources,
            names_image_handlers=given.gates.enabled("RuntimeClassInImageCriApi"),
        ),
        container=_container_settings(config, root, resources, machine, features),
        dns=DnsSettings(
            cluster_dns=usable_servers(config.cluster_dns),
            cluster_domain=config.cluster_domain,
            node_ips=tuple(map(str, node.node_ips)),
        ),
        user_ids=UserIdSettings(
            per_pod=config.user_namespaces.ids_per_pod,
            max_pods=config.max_pods,
            is_enabled=given.gates.enabled("UserNamespacesSupport"),
        ),
        node=node,
        runtime_handlers={each.metadata.name: each.handler for each in given.klet.runtime_classes},
        features=features,
        allowed_sysctls=tuple(normalize_sysctl(each) for each in config.allowed_unsafe_sysctls),
        declared_features=cut_declared_features(given),
        own_ports=cut_own_ports(config),
        images=cut_image_settings(given),
        has_image_volumes=given.gates.enabled("ImageVolume"),
        volume_labels=LabelRules(
            is_on=machine.has_selinux and given.gates.enabled("SELinuxMountReadWriteOncePod"),
            has_all_modes=given.gates.enabled("SELinuxMount"),
            has_policy=given.gates.enabled("SELinuxChangePolicy"),
        ),
        flex_drivers=Path(config.volume_plugin_dir),
        has_project_quotas=given.gates.enabled("LocalStorageCapacityIsolationFSQuotaMonitoring"),
        has_pod_level_resources=given.gates.enabled("PodLevelResources"),
        tolerates_user_namespace=given.gates.enabled("KubeletInUserNamespace"),
        gates=given.gates,
        credential_providers=given.credential_providers,
        credential_provider_programs=Path(flags.image_credential_provider_bin_dir),
        shows_hidden_metrics=bool(config.show_hidden_metrics_for_version),
    )


def cut_validation_options(given: Settings) -> PodValidationOptions:
    """Return which rules hold for static pods."""
    return replace(
        STATIC_POD,
        container_restart_rules=given.gates.enabled("ContainerRestartRules"),
        user_namespaces_host_network=given.gates.enabled("UserNamespacesHostNetworkSupport"),
        restart_all_containers=given.gates.enabled("RestartAllContainersOnContainerExits"),
        taint_comparisons=given.gates.enabled("TaintTolerationComparisonOperators"),
    )


def cut_image_settings(given: Settings) -> ImageSettings:
    """Return how images are pulled, and who may use them."""
    config = given.config
    has_rules = given.gates.enabled("KubeletEnsureSecretPulledImages")
    policy = config.image_pull_credentials_verification_policy
    return ImageSettings(
        at_once=choose_pulls_at_once(is_serial=config.serialize_image_pulls, most=config.max_parallel_image_pulls),
        pull_qps=config.registry_pull_qps,
        pull_burst=config.registry_burst,
        rules=build_rules(policy, config.preloaded_images_verification_allowlist) if has_rules else None,
        limits=choose_limits(max_pods=config.max_pods, most_pulls=config.max_parallel_image_pulls),
    )


def cut_features(given: Settings) -> PodFeatures:
    """Ask the gates of optional features of pods."""
    return PodFeatures(
        stop_signals=given.gates.enabled("ContainerStopSignals"),
        restart_all=given.gates.enabled("RestartAllContainersOnContainerExits"),
        taint_comparisons=given.gates.enabled("TaintTolerationComparisonOperators"),
        ready_to_start=given.gates.enabled("PodReadyToStartContainersCondition"),
    )


def cut_own_ports(config: KubeletConfiguration) -> tuple[ContainerPort, ...]:
    """Return the ports that the agent takes on the host."""
    listeners = (
        (config.address, config.port if config.enable_server else 0),
        (config.address, config.read_only_port),
        (config.healthz_bind_address, config.healthz_port),
    )
    return tuple(
        ContainerPort(container_port=port, host_port=port, host_ip="" if address in _EVERY_ADDRESS else address)
        for address, port in listeners
        if port > 0
    )


def cut_log_settings(config: KubeletConfiguration) -> LogSettings:
    """Choose how the agent logs; of the options only those of the chosen format act, as upstream."""
    as_json = config.logging.format == "json"
    text, json = config.logging.options.text, config.logging.options.json
    buffer = json.info_buffer_size if as_json else text.info_buffer_size
    return LogSettings(
        as_json=as_json,
        verbosity=config.logging.verbosity,
        vmodule=tuple(VModuleRule(item.file_pattern, item.verbosity) for item in config.logging.vmodule),
        is_split=json.split_stream if as_json else text.split_stream,
        info_buffer=buffer.value() if buffer is not None else 0,
        flush_seconds=config.logging.flush_frequency.total_seconds(),
    )


def cut_declared_features(given: Settings) -> tuple[str, ...] | None:
    """Return what the node declares; None if the gate is off.

    A feature that klet does not have yet is not declared, even if its gate is on: pods would be sent here for it, and
    changes of pods admitted that nobody carries out.
    """
    if not given.gates.enabled("NodeDeclaredFeatures"):
        return None

    def acts(gate: str) -> bool:
        return gate not in GATES_WITHOUT_EFFECT and given.gates.enabled(gate)

    found = discover_features(acts, cpu_policy=given.config.cpu_manager_policy)
    return tuple(name for name in found if name not in NOT_BUILT)


def check_settings(given: Settings, machine: MachineInfo) -> None:
    """Raise ConfigError for the first setting that this machine cannot keep; only looks at it."""
    config = given.config
    check_machine(given, machine)
    check_topology_manager(config, machine)
    cut_cpu_manager(given, machine)
    cut_memory_manager_settings(config, machine, cut_kept_resources(given, machine))
    with _about(f'cgroupRoot (--cgroup-root) "{config.cgroup_root}"', advice="write a path such as /klet"):
        cgroup_path(pods_root(parse_cgroupfs(config.cgroup_root)), CgroupDriver(config.cgroup_driver))
    with _about(f"maxPods (--max-pods) {config.max_pods} with userNamespaces.idsPerPod", advice="lower one of them"):
        choose_range(per_pod=config.user_namespaces.ids_per_pod, max_pods=config.max_pods)


def choose_legacy_logs(logs: Path) -> Path:
    """Return the directory beside the logs: `/var/log/containers` for `/var/log/pods`, where upstream always has it.

    A node that keeps its logs elsewhere, as test nodes do, then leaves nothing in the machine's own directory.
    """
    return logs.parent / "containers"


def _container_settings(
    config: KubeletConfiguration,
    root: Path,
    resources: ResourceRules,
    machine: MachineInfo,
    features: PodFeatures,
) -> ContainerSettings:
    return ContainerSettings(
        security=SecuritySettings(
            seccomp_default=config.seccomp_default,
            seccomp_root=str(root / "seccomp"),
            thermal_paths=machine.thermal_paths,
        ),
        resources=resources,
        relabels=machine.has_selinux,
        stop_signals=features.stop_signals,
    )


@contextmanager
def _about(setting: str, *, advice: str) -> Iterator[None]:
    try:
        yield
    except KletError as error:
        raise ConfigError(f"{setting}: {error}: {advice}") from error


def cut_container_rules(given: Settings, machine: MachineInfo) -> ResourceRules:
    """Return the settings that go into every container and sandbox configuration."""
    config = given.config
    unified = is_unified(machine)
    swap = SwapRules(is_limited=config.memory_swap.swap_behavior == LIMITED_SWAP, capacity=machine.swap)
    memory_qos = MemoryQosRules(
        throttling_factor=config.memory_throttling_factor,
        allocatable=allocatable_memory(given, machine),
        page_size=machine.page_size,
    )
    return ResourceRules(
        is_unified=unified,
        cpu_quota=config.cpu_cfs_quota,
        cpu_period=cpu_period(given),
        memory_capacity=machine.memory,
        hugepage_sizes=machine.hugepage_sizes,
        kills_whole_container=unified and not config.single_process_oom_kill,
        swap=swap if machine.has_swap_controller else None,
        memory_qos=memory_qos if has_memory_qos(given, machine) else None,
    )


def cut_cpu_manager(given: Settings, machine: MachineInfo) -> CpuManagerSettings:
    """Return which CPUs containers may have alone."""
    return cut_cpu_manager_settings(
        given.config,
        machine,
        cut_kept_resources(given, machine),
        lifts_quota=given.gates.enabled("DisableCPUQuotaWithExclusiveCPUs"),
    )


def cut_kept_resources(given: Settings, machine: MachineInfo) -> Mapping[str, Quantity]:
    """Return what the node keeps from pods of each resource (GetNodeAllocatableReservation)."""
    ignore_eviction = given.flags.experimental_allocatable_ignore_eviction
    reservations = cut_reservations(given.config, ignore_eviction=ignore_eviction)
    return {name: reservations.of(name, capacity) for name, capacity in machine_capacity(machine).items()}
