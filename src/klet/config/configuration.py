"""KubeletConfiguration (kubelet.config.k8s.io/v1beta1), whole and effective.

A value of this type has been through defaulting, so a zero here is a zero that was asked for. What may still be
None has no default upstream either. The field's place in the file is its section of the kubelet's documentation.
"""

from collections.abc import Mapping
from datetime import timedelta

from msgspec import field

from klet.api.base import Int32, Int64
from klet.api.placement import Taint
from klet.config.sections import (
    NOTHING,
    Authentication,
    Authorization,
    CrashLoopBackOff,
    Logging,
    MemoryReservation,
    MemorySwap,
    Section,
    ShutdownGracePeriodByPodPriority,
    Tracing,
    UserNamespaces,
)

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"


class KubeletConfiguration(Section, frozen=True, kw_only=True):
    """Upstream's KubeletConfiguration, complete."""

    # Server, authentication, TLS
    enable_server: bool = False
    address: str = ""
    port: Int32 = 0
    read_only_port: Int32 = 0
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    tls_min_version: str = ""
    rotate_certificates: bool = False
    server_tls_bootstrap: bool = field(name="serverTLSBootstrap", default=False)
    authentication: Authentication = Authentication()
    authorization: Authorization = Authorization()
    enable_debugging_handlers: bool = False
    enable_contention_profiling: bool = False
    enable_profiling_handler: bool = False
    enable_debug_flags_handler: bool = False
    enable_system_log_handler: bool = False
    enable_system_log_query: bool = False
    healthz_port: Int32 = 0
    healthz_bind_address: str = ""
    streaming_connection_idle_timeout: timedelta = NOTHING
    show_hidden_metrics_for_version: str = ""
    tracing: Tracing | None = None
    logging: Logging = Logging()

    # Pods, their sources, their containers
    static_pod_path: str = ""
    static_pod_url: str = field(name="staticPodURL", default="")
    static_pod_url_header: Mapping[str, tuple[str, ...]] = field(name="staticPodURLHeader", default={})
    sync_frequency: timedelta = NOTHING
    file_check_frequency: timedelta = NOTHING
    http_check_frequency: timedelta = NOTHING
    max_pods: Int32 = 0
    pods_per_core: Int32 = 0
    pod_pids_limit: Int64 = 0
    pod_cidr: str = field(name="podCIDR", default="")
    resolv_conf: str = ""
    cluster_domain: str = ""
    cluster_dns: tuple[str, ...] = field(name="clusterDNS", default=())
    hairpin_mode: str = ""
    pod_logs_dir: str = ""
    config_map_and_secret_change_detection_strategy: str = ""
    crash_loop_back_off: CrashLoopBackOff = CrashLoopBackOff()
    register_node: bool = False
    register_with_taints: tuple[Taint, ...] = ()
    provider_id: str = field(name="providerID", default="")
    enable_controller_attach_detach: bool = False
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    volume_plugin_dir: str = ""
    run_once: bool = False
    seccomp_default: bool = False
    user_namespaces: UserNamespaces = UserNamespaces()
    local_storage_capacity_isolation: bool = False
    container_log_max_size: str = ""
    container_log_max_files: Int32 = 0
    container_log_max_workers: Int32 = 0
    container_log_monitor_interval: timedelta = NOTHING

    # API client, node status, events
    node_status_update_frequency: timedelta = NOTHING
    node_status_report_frequency: timedelta = NOTHING
    node_lease_duration_seconds: Int32 = 0
    node_status_max_images: Int32 = 0
    content_type: str = ""
    kube_api_qps: Int32 = field(name="kubeAPIQPS", default=0)
    kube_api_burst: Int32 = field(name="kubeAPIBurst", default=0)
    event_record_qps: Int32 = field(name="eventRecordQPS", default=0)
    event_burst: Int32 = 0

    # Resources and cgroups
    cgroups_per_qos: bool = field(name="cgroupsPerQOS", default=False)
    cgroup_root: str = ""
    cgroup_driver: str = ""
    kubelet_cgroups: str = ""
    system_cgroups: str = ""
    fail_cgroup_v1: bool = False
    single_process_oom_kill: bool | None = field(name="singleProcessOOMKill", default=None)
    cpu_cfs_quota: bool = field(name="cpuCFSQuota", default=False)
    cpu_cfs_quota_period: timedelta = field(name="cpuCFSQuotaPeriod", default=NOTHING)
    cpu_manager_policy: str = ""
    cpu_manager_policy_options: Mapping[str, str] = {}
    cpu_manager_reconcile_period: timedelta = NOTHING
    memory_manager_policy: str = ""
    reserved_memory: tuple[MemoryReservation, ...] = ()
    topology_manager_policy: str = ""
    topology_manager_scope: str = ""
    topology_manager_policy_options: Mapping[str, str] = {}
    qos_reserved: Mapping[str, str] = {}
    system_reserved: Mapping[str, str] = {}
    kube_reserved: Mapping[str, str] = {}
    system_reserved_cgroup: str = ""
    kube_reserved_cgroup: str = ""
    reserved_system_cpus: str = field(name="reservedSystemCPUs", default="")
    enforce_node_allocatable: tuple[str, ...] = ()
    protect_kernel_defaults: bool = False
    make_iptables_util_chains: bool = field(name="makeIPTablesUtilChains", default=False)
    iptables_masquerade_bit: Int32 = 0
    iptables_drop_bit: Int32 = 0
    fail_swap_on: bool = False
    memory_swap: MemorySwap = MemorySwap()
    memory_throttling_factor: float = 0.0
    oom_score_adj: Int32 = 0
    max_open_files: Int64 = 0
    kernel_memcg_notification: bool = False

    # The runtime and its images
    container_runtime_endpoint: str = ""
    image_service_endpoint: str = ""
    runtime_request_timeout: timedelta = NOTHING
    registry_pull_qps: Int32 = field(name="registryPullQPS", default=0)
    registry_burst: Int32 = 0
    serialize_image_pulls: bool = False
    max_parallel_image_pulls: Int32 | None = None
    image_minimum_gc_age: timedelta = field(name="imageMinimumGCAge", default=NOTHING)
    image_maximum_gc_age: timedelta = field(name="imageMaximumGCAge", default=NOTHING)
    image_gc_high_threshold_percent: Int32 = field(name="imageGCHighThresholdPercent", default=0)
    image_gc_low_threshold_percent: Int32 = field(name="imageGCLowThresholdPercent", default=0)
    volume_stats_agg_period: timedelta = NOTHING
    image_pull_credentials_verification_policy: str = ""
    preloaded_images_verification_allowlist: tuple[str, ...] = ()

    # Eviction, shutdown, gates
    eviction_hard: Mapping[str, str] = {}
    eviction_soft: Mapping[str, str] = {}
    eviction_soft_grace_period: Mapping[str, str] = {}
    eviction_minimum_reclaim: Mapping[str, str] = {}
    eviction_pressure_transition_period: timedelta = NOTHING
    eviction_max_pod_grace_period: Int32 = 0
    merge_default_eviction_settings: bool = False
    shutdown_grace_period: timedelta = NOTHING
    shutdown_grace_period_critical_pods: timedelta = NOTHING
    shutdown_grace_period_by_pod_priority: tuple[ShutdownGracePeriodByPodPriority, ...] = ()
    feature_gates: Mapping[str, bool] = {}
