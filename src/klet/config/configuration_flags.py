"""The flags that override a field of KubeletConfiguration, as a table, and how they are laid over one."""

from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from klet.config.configuration import KubeletConfiguration
from klet.config.flagset import Flag, FlagTarget, ParsedFlags
from klet.config.flagvalues import (
    BOOL,
    DURATION,
    GATES,
    HEADERS,
    INT32,
    INT64,
    IP,
    LEVEL,
    MAP,
    OPTIONS,
    QUANTITY,
    RESERVED_MEMORY,
    STRING,
    STRINGS,
    TAINTS,
    THRESHOLDS,
    VMODULE,
    FlagKind,
    FlagValue,
)

S = TypeVar("S", bound=msgspec.Struct)

DEPRECATED: Final = (
    "This parameter should be set via the config file specified by the Kubelet's --config flag. See "
    "https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information."
)
NOT_DEPRECATED: Final = frozenset({"v", "vmodule", "log-flush-frequency", "provider-id", "fail-cgroupv1"})

_SERVER: Final = "Server, authentication and certificates"
_PODS: Final = "Pods and where they come from"
_NODE: Final = "Node status, events and the API client"
_RESOURCES: Final = "Resources and cgroups"
_IMAGES: Final = "Container runtime and images"
_EVICTION: Final = "Eviction"
_LOGGING: Final = "Logging"
_GATES: Final = "Feature gates"


def _override(section: str, name: str, kind: FlagKind, field: str, text: str, *, shorthand: str = "") -> Flag:
    deprecated = "" if name in NOT_DEPRECATED else DEPRECATED
    return Flag(name, kind, section, text, FlagTarget.CONFIGURATION, field, shorthand, deprecated)


_VERBOSITY: Final = "Verbosity: 0 always shown, 2 normal course, 3 changes, 4 debugging, 5 tracing, 6 requests"

CONFIGURATION_FLAGS: Final = (
    _override(_SERVER, "enable-server", BOOL, "enableServer", "Run the HTTPS server"),
    _override(_SERVER, "address", IP, "address", "Address that the servers listen on"),
    _override(_SERVER, "port", INT32, "port", "Port of the HTTPS server"),
    _override(_SERVER, "read-only-port", INT32, "readOnlyPort", "Port of the plain HTTP server; 0: off"),
    _override(_SERVER, "anonymous-auth", BOOL, "authentication.anonymous.enabled", "Let anonymous requests in"),
    _override(
        _SERVER,
        "authentication-token-webhook",
        BOOL,
        "authentication.webhook.enabled",
        "Ask the API server who a bearer token belongs to",
    ),
    _override(
        _SERVER,
        "authentication-token-webhook-cache-ttl",
        DURATION,
        "authentication.webhook.cacheTTL",
        "How long such an answer is kept",
    ),
    _override(
        _SERVER,
        "client-ca-file",
        STRING,
        "authentication.x509.clientCAFile",
        "Certificate authorities of client certificates",
    ),
    _override(_SERVER, "authorization-mode", STRING, "authorization.mode", "AlwaysAllow or Webhook"),
    _override(
        _SERVER,
        "authorization-webhook-cache-authorized-ttl",
        DURATION,
        "authorization.webhook.cacheAuthorizedTTL",
        "How long a permission is kept",
    ),
    _override(
        _SERVER,
        "authorization-webhook-cache-unauthorized-ttl",
        DURATION,
        "authorization.webhook.cacheUnauthorizedTTL",
        "How long a refusal is kept",
    ),
    _override(_SERVER, "tls-cert-file", STRING, "tlsCertFile", "Serving certificate; none: a self-signed one"),
    _override(_SERVER, "tls-private-key-file", STRING, "tlsPrivateKeyFile", "Key of the serving certificate"),
    _override(_SERVER, "tls-cipher-suites", STRINGS, "tlsCipherSuites", "Cipher suites of the server"),
    _override(_SERVER, "tls-min-version", STRING, "tlsMinVersion", "VersionTLS10 to VersionTLS13"),
    _override(_SERVER, "rotate-certificates", BOOL, "rotateCertificates", "Renew the client certificate by itself"),
    _override(
        _SERVER, "rotate-server-certificates", BOOL, "serverTLSBootstrap", "Request and renew the serving certificate"
    ),
    _override(
        _SERVER, "enable-debugging-handlers", BOOL, "enableDebuggingHandlers", "Serve logs, exec, attach and the like"
    ),
    _override(_SERVER, "contention-profiling", BOOL, "enableContentionProfiling", "Profile blocking"),
    _override(_SERVER, "healthz-port", INT32, "healthzPort", "Port of the health server; 0: off"),
    _override(_SERVER, "healthz-bind-address", IP, "healthzBindAddress", "Address of the health server"),
    _override(
        _SERVER,
        "streaming-connection-idle-timeout",
        DURATION,
        "streamingConnectionIdleTimeout",
        "Accepted, without effect",
    ),
    _override(_PODS, "pod-manifest-path", STRING, "staticPodPath", "File or directory of static pods"),
    _override(_PODS, "manifest-url", STRING, "staticPodURL", "URL of static pods"),
    _override(
        _PODS, "manifest-url-header", HEADERS, "staticPodURLHeader", "Headers for --manifest-url, name:value,..."
    ),
    _override(_PODS, "sync-frequency", DURATION, "syncFrequency", "Longest time between two looks at a pod"),
    _override(
        _PODS, "file-check-frequency", DURATION, "fileCheckFrequency", "Interval between looks at static pod files"
    ),
    _override(
        _PODS, "http-check-frequency", DURATION, "httpCheckFrequency", "Interval between reads of --manifest-url"
    ),
    _override(_PODS, "max-pods", INT32, "maxPods", "Pods on this node"),
    _override(_PODS, "pods-per-core", INT32, "podsPerCore", "Pods per core, within --max-pods; 0: no limit"),
    _override(_PODS, "pod-max-pids", INT64, "podPidsLimit", "Processes per pod; -1: what the node allows"),
    _override(_PODS, "pod-cidr", STRING, "podCIDR", "Pod network in standalone mode"),
    _override(_PODS, "resolv-conf", STRING, "resolvConf", "Resolver configuration that pods start from"),
    _override(_PODS, "cluster-domain", STRING, "clusterDomain", "Domain of the cluster"),
    _override(_PODS, "cluster-dns", STRINGS, "clusterDNS", "Name servers of the cluster"),
    _override(_PODS, "hairpin-mode", STRING, "hairpinMode", "none, hairpin-veth or promiscuous-bridge; without effect"),
    _override(
        _PODS, "allowed-unsafe-sysctls", STRINGS, "allowedUnsafeSysctls", "Unsafe sysctls or patterns that pods may set"
    ),
    _override(_PODS, "runonce", BOOL, "runOnce", "No longer supported"),
    _override(
        _PODS,
        "enable-controller-attach-detach",
        BOOL,
        "enableControllerAttachDetach",
        "Leave attaching volumes to the controller",
    ),
    _override(_PODS, "volume-plugin-dir", STRING, "volumePluginDir", "Directory of FlexVolume drivers"),
    _override(
        _PODS,
        "local-storage-capacity-isolation",
        BOOL,
        "localStorageCapacityIsolation",
        "Account for local ephemeral storage",
    ),
    _override(_PODS, "container-log-max-size", STRING, "containerLogMaxSize", "Size at which a container log rotates"),
    _override(_PODS, "container-log-max-files", INT32, "containerLogMaxFiles", "Log files per container, at least 2"),
    _override(
        _PODS, "volume-stats-agg-period", DURATION, "volumeStatsAggPeriod", "Interval between volume measurements"
    ),
    _override(_NODE, "register-node", BOOL, "registerNode", "Register the node with the API server"),
    _override(
        _NODE, "register-with-taints", TAINTS, "registerWithTaints", "Taints of the new node, key=value:effect,..."
    ),
    _override(_NODE, "provider-id", STRING, "providerID", "Identity of the machine at its provider"),
    _override(
        _NODE, "node-status-update-frequency", DURATION, "nodeStatusUpdateFrequency", "Interval between node statuses"
    ),
    _override(_NODE, "node-status-max-images", INT32, "nodeStatusMaxImages", "Images in the node status; -1: no limit"),
    _override(
        _NODE, "kube-api-content-type", STRING, "contentType", "Content type of API requests; klet always speaks JSON"
    ),
    _override(_NODE, "kube-api-qps", INT32, "kubeAPIQPS", "Requests per second to the API server, watches apart"),
    _override(_NODE, "kube-api-burst", INT32, "kubeAPIBurst", "Burst of requests to the API server"),
    _override(_NODE, "event-qps", INT32, "eventRecordQPS", "Events per second"),
    _override(_NODE, "event-burst", INT32, "eventBurst", "Burst of events"),
    _override(_RESOURCES, "cgroups-per-qos", BOOL, "cgroupsPerQOS", "One cgroup for each QoS class"),
    _override(_RESOURCES, "cgroup-root", STRING, "cgroupRoot", "Cgroup above all pods"),
    _override(_RESOURCES, "cgroup-driver", STRING, "cgroupDriver", "cgroupfs or systemd, if the runtime does not say"),
    _override(_RESOURCES, "fail-cgroupv1", BOOL, "failCgroupV1", "Refuse to run on cgroup v1"),
    _override(_RESOURCES, "kubelet-cgroups", STRING, "kubeletCgroups", "Cgroup of the agent itself"),
    _override(_RESOURCES, "system-cgroups", STRING, "systemCgroups", "Cgroup for processes outside of any"),
    _override(_RESOURCES, "cpu-cfs-quota", BOOL, "cpuCFSQuota", "Enforce CPU limits"),
    _override(_RESOURCES, "cpu-cfs-quota-period", DURATION, "cpuCFSQuotaPeriod", "Period of the CPU quota"),
    _override(_RESOURCES, "cpu-manager-policy", STRING, "cpuManagerPolicy", "none or static"),
    _override(
        _RESOURCES,
        "cpu-manager-policy-options",
        OPTIONS,
        "cpuManagerPolicyOptions",
        "An option of the policy, key=value",
    ),
    _override(
        _RESOURCES,
        "cpu-manager-reconcile-period",
        DURATION,
        "cpuManagerReconcilePeriod",
        "Interval between corrections of CPU sets",
    ),
    _override(_RESOURCES, "memory-manager-policy", STRING, "memoryManagerPolicy", "None or Static"),
    _override(
        _RESOURCES, "reserved-memory", RESERVED_MEMORY, "reservedMemory", "Memory kept back, NUMA:type=amount,..."
    ),
    _override(
        _RESOURCES,
        "topology-manager-policy",
        STRING,
        "topologyManagerPolicy",
        "none, best-effort, restricted or single-numa-node",
    ),
    _override(_RESOURCES, "topology-manager-scope", STRING, "topologyManagerScope", "container or pod"),
    _override(
        _RESOURCES,
        "topology-manager-policy-options",
        OPTIONS,
        "topologyManagerPolicyOptions",
        "An option of the policy, key=value",
    ),
    _override(_RESOURCES, "qos-reserved", MAP, "qosReserved", "Share kept for requests of a QoS class, memory=50%"),
    _override(_RESOURCES, "system-reserved", MAP, "systemReserved", "Resources kept for the system, cpu=200m,..."),
    _override(_RESOURCES, "kube-reserved", MAP, "kubeReserved", "Resources kept for Kubernetes, cpu=200m,..."),
    _override(_RESOURCES, "system-reserved-cgroup", STRING, "systemReservedCgroup", "Cgroup of system processes"),
    _override(_RESOURCES, "kube-reserved-cgroup", STRING, "kubeReservedCgroup", "Cgroup of Kubernetes processes"),
    _override(_RESOURCES, "reserved-cpus", STRING, "reservedSystemCPUs", "CPUs kept for the system, such as 0-1"),
    _override(
        _RESOURCES,
        "enforce-node-allocatable",
        STRINGS,
        "enforceNodeAllocatable",
        "none, or pods, system-reserved, kube-reserved and their -compressible forms",
    ),
    _override(
        _RESOURCES,
        "protect-kernel-defaults",
        BOOL,
        "protectKernelDefaults",
        "Fail when kernel settings differ instead of writing them",
    ),
    _override(
        _RESOURCES, "make-iptables-util-chains", BOOL, "makeIPTablesUtilChains", "Keep the utility chains of iptables"
    ),
    _override(_RESOURCES, "fail-swap-on", BOOL, "failSwapOn", "Refuse to run with swap"),
    _override(_RESOURCES, "oom-score-adj", INT32, "oomScoreAdj", "OOM score of the agent, -1000 to 1000"),
    _override(_RESOURCES, "max-open-files", INT64, "maxOpenFiles", "Files that the agent may have open"),
    _override(
        _RESOURCES,
        "kernel-memcg-notification",
        BOOL,
        "kernelMemcgNotification",
        "Let the kernel notify klet of memory thresholds",
    ),
    _override(
        _IMAGES, "container-runtime-endpoint", STRING, "containerRuntimeEndpoint", "Socket of the container runtime"
    ),
    _override(
        _IMAGES, "image-service-endpoint", STRING, "imageServiceEndpoint", "Socket of the image service, if another"
    ),
    _override(_IMAGES, "runtime-request-timeout", DURATION, "runtimeRequestTimeout", "Deadline of runtime calls"),
    _override(_IMAGES, "registry-qps", INT32, "registryPullQPS", "Image pulls per second; 0: no limit"),
    _override(_IMAGES, "registry-burst", INT32, "registryBurst", "Burst of image pulls"),
    _override(_IMAGES, "serialize-image-pulls", BOOL, "serializeImagePulls", "Pull one image at a time"),
    _override(
        _IMAGES, "minimum-image-ttl-duration", DURATION, "imageMinimumGCAge", "Age before an unused image may go"
    ),
    _override(
        _IMAGES,
        "image-gc-high-threshold",
        INT32,
        "imageGCHighThresholdPercent",
        "Disk usage in percent that starts image clean-up",
    ),
    _override(
        _IMAGES,
        "image-gc-low-threshold",
        INT32,
        "imageGCLowThresholdPercent",
        "Disk usage in percent that ends image clean-up",
    ),
    _override(_EVICTION, "eviction-hard", THRESHOLDS, "evictionHard", "Thresholds, memory.available<1Gi,..."),
    _override(_EVICTION, "eviction-soft", THRESHOLDS, "evictionSoft", "Thresholds with a grace period"),
    _override(
        _EVICTION, "eviction-soft-grace-period", MAP, "evictionSoftGracePeriod", "Their grace periods, signal=1m30s,..."
    ),
    _override(
        _EVICTION,
        "eviction-pressure-transition-period",
        DURATION,
        "evictionPressureTransitionPeriod",
        "How long a pressure condition stays",
    ),
    _override(
        _EVICTION,
        "eviction-max-pod-grace-period",
        INT32,
        "evictionMaxPodGracePeriod",
        "Longest grace period in seconds of a soft eviction",
    ),
    _override(
        _EVICTION, "eviction-minimum-reclaim", MAP, "evictionMinimumReclaim", "Least amount to reclaim, signal=2Gi,..."
    ),
    _override(_LOGGING, "logging-format", STRING, "logging.format", "text or json"),
    _override(
        _LOGGING, "log-flush-frequency", DURATION, "logging.flushFrequency", "Longest time that lines are buffered"
    ),
    _override(_LOGGING, "v", LEVEL, "logging.verbosity", _VERBOSITY, shorthand="v"),
    _override(_LOGGING, "vmodule", VMODULE, "logging.vmodule", "Verbosity by module: pattern=N,... (text only)"),
    _override(
        _LOGGING,
        "log-text-split-stream",
        BOOL,
        "logging.options.text.splitStream",
        "Errors to stderr, the rest to stdout (gate LoggingAlphaOptions)",
    ),
    _override(
        _LOGGING,
        "log-text-info-buffer-size",
        QUANTITY,
        "logging.options.text.infoBufferSize",
        "Bytes of information that a split stream may buffer (gate LoggingAlphaOptions)",
    ),
    _override(
        _LOGGING,
        "log-json-split-stream",
        BOOL,
        "logging.options.json.splitStream",
        "Errors to stderr, the rest to stdout (gate LoggingAlphaOptions)",
    ),
    _override(
        _LOGGING,
        "log-json-info-buffer-size",
        QUANTITY,
        "logging.options.json.infoBufferSize",
        "Bytes of information that a split stream may buffer (gate LoggingAlphaOptions)",
    ),
    _override(_GATES, "feature-gates", GATES, "featureGates", "Gate=true|false,..."),
)


def override_configuration(config: KubeletConfiguration, parsed: ParsedFlags) -> KubeletConfiguration:
    """Lay the flags that were given over a configuration; feature gates of the configuration stay where none was."""
    for flag in CONFIGURATION_FLAGS:
        value = parsed.values.get(flag.name)
        if value is None:
            continue
        if flag.kind is GATES:
            assert isinstance(value, dict)
            value = {**config.feature_gates, **value}
        config = set_field(config, flag.field, value)
    return config


def set_field(struct: S, path: str, value: FlagValue) -> S:
    """Return a copy of a struct with the field at a path of wire names replaced."""
    name, _, rest = path.partition(".")
    attribute = find_attribute(struct, name)
    if rest:
        return replace(struct, **{attribute: set_field(getattr(struct, attribute), rest, value)})
    return replace(struct, **{attribute: value})


def get_field(struct: msgspec.Struct, path: str) -> object:
    """Return the value at a path of wire names."""
    name, _, rest = path.partition(".")
    value = getattr(struct, find_attribute(struct, name))
    return get_field(value, rest) if rest else value


def find_attribute(struct: msgspec.Struct, wire_name: str) -> str:
    names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    return names[wire_name]
