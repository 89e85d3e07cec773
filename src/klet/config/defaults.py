"""The defaults of KubeletConfiguration, as data and as pure functions on documents and structs.

A pointer field upstream keeps an explicit zero (`keeps_zero`); any other field treats zero, "" and 0s as unset.
"""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from klet.api.times import Duration
from klet.config.configuration import KubeletConfiguration
from klet.config.decode import decode
from klet.config.document import Json, JsonObject
from klet.config.gates import FeatureGates

READ_ONLY_PORT: Final = 10255


@dataclass(frozen=True, slots=True)
class FieldDefault:
    """What an unset field becomes."""

    path: str
    value: Json
    keeps_zero: bool = False
    gate: str = ""
    """The feature gate without which the field stays unset."""


def _kept(path: str, value: Json, *, gate: str = "") -> FieldDefault:
    return FieldDefault(path, value, keeps_zero=True, gate=gate)


DEFAULTS: Final = (
    _kept("enableServer", True),
    FieldDefault("address", "0.0.0.0"),  # noqa: S104 - upstream's default
    FieldDefault("port", 10250),
    _kept("authentication.webhook.enabled", True),
    FieldDefault("authentication.webhook.cacheTTL", "2m0s"),
    _kept("authentication.anonymous.enabled", False),
    FieldDefault("authorization.mode", "Webhook"),
    FieldDefault("authorization.webhook.cacheAuthorizedTTL", "5m0s"),
    FieldDefault("authorization.webhook.cacheUnauthorizedTTL", "30s"),
    _kept("enableDebuggingHandlers", True),
    _kept("enableProfilingHandler", True),
    _kept("enableDebugFlagsHandler", True),
    _kept("enableSystemLogHandler", True),
    _kept("enableSystemLogQuery", False),
    _kept("healthzPort", 10248),
    FieldDefault("healthzBindAddress", "127.0.0.1"),
    FieldDefault("streamingConnectionIdleTimeout", "4h0m0s"),
    FieldDefault("logging.format", "text"),
    FieldDefault("logging.flushFrequency", "5s"),
    FieldDefault("syncFrequency", "1m0s"),
    FieldDefault("fileCheckFrequency", "20s"),
    FieldDefault("httpCheckFrequency", "20s"),
    FieldDefault("maxPods", 110),
    _kept("podPidsLimit", -1),
    _kept("resolvConf", "/etc/resolv.conf"),
    FieldDefault("hairpinMode", "promiscuous-bridge"),
    FieldDefault("podLogsDir", "/var/log/pods"),
    FieldDefault("configMapAndSecretChangeDetectionStrategy", "Watch"),
    _kept("crashLoopBackOff.maxContainerRestartPeriod", "5m0s", gate="KubeletCrashLoopBackOffMax"),
    _kept("registerNode", True),
    _kept("enableControllerAttachDetach", True),
    FieldDefault("volumePluginDir", "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"),
    _kept("seccompDefault", False),
    _kept("userNamespaces.idsPerPod", 65536),
    _kept("localStorageCapacityIsolation", True),
    FieldDefault("containerLogMaxSize", "10Mi"),
    _kept("containerLogMaxFiles", 5),
    _kept("containerLogMaxWorkers", 1),
    _kept("containerLogMonitorInterval", "10s"),
    FieldDefault("nodeStatusUpdateFrequency", "10s"),
    FieldDefault("nodeStatusReportFrequency", "5m0s"),
    FieldDefault("nodeLeaseDurationSeconds", 40),
    _kept("nodeStatusMaxImages", 50),
    FieldDefault("contentType", "application/vnd.kubernetes.protobuf"),
    _kept("kubeAPIQPS", 50),
    FieldDefault("kubeAPIBurst", 100),
    _kept("eventRecordQPS", 50),
    FieldDefault("eventBurst", 100),
    _kept("cgroupsPerQOS", True),
    FieldDefault("cgroupDriver", "cgroupfs"),
    _kept("failCgroupV1", True),
    _kept("cpuCFSQuota", True),
    _kept("cpuCFSQuotaPeriod", "100ms"),
    FieldDefault("cpuManagerPolicy", "none"),
    FieldDefault("cpuManagerReconcilePeriod", "10s"),
    FieldDefault("memoryManagerPolicy", "None"),
    FieldDefault("topologyManagerPolicy", "none"),
    FieldDefault("topologyManagerScope", "container"),
    _kept("enforceNodeAllocatable", ["pods"]),
    _kept("makeIPTablesUtilChains", True),
    _kept("iptablesMasqueradeBit", 14),
    _kept("iptablesDropBit", 15),
    _kept("failSwapOn", True),
    _kept("memoryThrottlingFactor", 0.9),
    _kept("oomScoreAdj", -999),
    FieldDefault("maxOpenFiles", 1000000),
    FieldDefault("containerRuntimeEndpoint", "unix:///run/containerd/containerd.sock"),
    FieldDefault("runtimeRequestTimeout", "2m0s"),
    _kept("registryPullQPS", 5),
    FieldDefault("registryBurst", 10),
    _kept("serializeImagePulls", True),
    FieldDefault("imageMinimumGCAge", "2m0s"),
    _kept("imageGCHighThresholdPercent", 85),
    _kept("imageGCLowThresholdPercent", 80),
    FieldDefault("volumeStatsAggPeriod", "1m0s"),
    FieldDefault(
        "imagePullCredentialsVerificationPolicy",
        "NeverVerifyPreloadedImages",
        gate="KubeletEnsureSecretPulledImages",
    ),
    FieldDefault("evictionPressureTransitionPeriod", "5m0s"),
    _kept("mergeDefaultEvictionSettings", False),
)

KEEPS_ZERO: Final = frozenset(
    (
        # Upstream leaves an empty list out when it writes the configuration, so the list does not survive that way.
        *(default.path for default in DEFAULTS if default.keeps_zero and default.path != "enforceNodeAllocatable"),
        "singleProcessOOMKill",
        "maxParallelImagePulls",
        "tracing.endpoint",
        "tracing.samplingRatePerMillion",
        "containerRuntimeEndpoint",
        "logging.verbosity",
    )
)
"""Fields that are written even when they are zero."""

DEFAULT_EVICTION_HARD: Final[Mapping[str, str]] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}

PATH_FIELDS: Final = (
    "staticPodPath",
    "authentication.x509.clientCAFile",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "resolvConf",
    "volumePluginDir",
    "podLogsDir",
)
"""Fields of `--config` whose relative paths start at the directory of the file."""


def apply_defaults(fields: JsonObject, *, gates: FeatureGates) -> dict[str, Json]:
    """Fill every unset field of a well-typed document; the document itself is not changed."""
    filled = _copy(fields)
    follows = _status_report_follows(fields)
    for default in DEFAULTS:
        if default.gate and not gates.enabled(default.gate):
            continue
        if _is_unset(get_path(filled, default.path), keeps_zero=default.keeps_zero):
            _set_path(filled, default.path, _SPECIAL.get(default.path, _plain)(fields, default.value))
    if follows is not None:
        filled["nodeStatusReportFrequency"] = follows
    limit = filled["podPidsLimit"]
    filled["podPidsLimit"] = -1 if isinstance(limit, int) and limit < 0 else limit
    return filled


def default_configuration(gates: FeatureGates) -> KubeletConfiguration:
    """The configuration of a file that says nothing, before its eviction thresholds."""
    return decode(apply_defaults({}, gates=gates), KubeletConfiguration).value


def apply_legacy_defaults(config: KubeletConfiguration) -> KubeletConfiguration:
    """Give the configuration the laxer defaults that hold when there is no configuration file."""
    authentication = replace(
        config.authentication,
        anonymous=replace(config.authentication.anonymous, enabled=True),
        webhook=replace(config.authentication.webhook, enabled=False),
    )
    authorization = replace(config.authorization, mode="AlwaysAllow")
    return replace(config, authentication=authentication, authorization=authorization, read_only_port=READ_ONLY_PORT)


def apply_eviction_defaults(fields: JsonObject) -> dict[str, Json]:
    """Add the built-in hard thresholds: all when there are none, the missing ones when the file asks for that."""
    written = fields.get("evictionHard")
    if written is None:
        return {**fields, "evictionHard": dict(DEFAULT_EVICTION_HARD)}
    if fields.get("mergeDefaultEvictionSettings") is True:
        assert isinstance(written, dict)
        return {**fields, "evictionHard": {**DEFAULT_EVICTION_HARD, **written}}
    return dict(fields)


def resolve_paths(fields: JsonObject, *, directory: str) -> dict[str, Json]:
    """Make the relative paths of a configuration file absolute; an empty one stays empty."""
    resolved = _copy(fields)
    for path in PATH_FIELDS:
        value = get_path(resolved, path)
        if isinstance(value, str) and value and not value.startswith("/"):
            _set_path(resolved, path, posixpath.normpath(posixpath.join(directory, value)))
    return resolved


def get_path(fields: JsonObject, path: str) -> Json:
    """Read a nested field; a missing one is None."""
    value: Json = dict(fields)
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _plain(_: JsonObject, default: Json) -> Json:
    return default


def _serialize_image_pulls(fields: JsonObject, _: Json) -> Json:
    parallel = fields.get("maxParallelImagePulls")
    return not (isinstance(parallel, int) and parallel > 1)


_SPECIAL: Final[Mapping[str, Callable[[JsonObject, Json], Json]]] = {"serializeImagePulls": _serialize_image_pulls}


def _status_report_follows(fields: JsonObject) -> Json:
    """The report frequency when it is left to an update frequency that somebody chose."""
    update = fields.get("nodeStatusUpdateFrequency")
    if _is_unset(fields.get("nodeStatusReportFrequency"), keeps_zero=False) and not _is_unset(update, keeps_zero=False):
        return update
    return None


def _is_unset(value: Json, *, keeps_zero: bool) -> bool:
    if value is None or keeps_zero:
        return value is None
    return value in (0, "") or (isinstance(value, str) and _is_zero_duration(value))


def _is_zero_duration(text: str) -> bool:
    try:
        return Duration.parse(text) == timedelta()
    except ValueError:
        return False


def _set_path(fields: dict[str, Json], path: str, value: Json) -> None:
    *parents, last = path.split(".")
    for key in parents:
        inner = fields.get(key)
        if not isinstance(inner, dict):
            inner = fields[key] = {}
        fields = inner
    fields[last] = value


def _copy(fields: JsonObject) -> dict[str, Json]:
    return {key: _copy(value) if isinstance(value, dict) else value for key, value in fields.items()}
