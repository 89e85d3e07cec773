"""The defaults of KubeletConfiguration, as data and as pure functions on documents and structs.

Whether an explicit zero survives depends on the field being a pointer upstream, so there are two tables.
"""

import posixpath
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from klet.api.times import Duration
from klet.config.configuration import KubeletConfiguration
from klet.config.decode import decode
from klet.config.document import Json, JsonObject
from klet.config.gates import FeatureGates

READ_ONLY_PORT: Final = 10255


POINTER_DEFAULTS: Final[Mapping[str, Json]] = {
    "enableServer": True,
    "authentication.webhook.enabled": True,
    "authentication.anonymous.enabled": False,
    "enableDebuggingHandlers": True,
    "enableProfilingHandler": True,
    "enableDebugFlagsHandler": True,
    "enableSystemLogHandler": True,
    "enableSystemLogQuery": False,
    "healthzPort": 10248,
    "podPidsLimit": -1,
    "resolvConf": "/etc/resolv.conf",
    "crashLoopBackOff.maxContainerRestartPeriod": "5m0s",
    "registerNode": True,
    "enableControllerAttachDetach": True,
    "seccompDefault": False,
    "userNamespaces.idsPerPod": 65536,
    "localStorageCapacityIsolation": True,
    "containerLogMaxFiles": 5,
    "containerLogMaxWorkers": 1,
    "containerLogMonitorInterval": "10s",
    "nodeStatusMaxImages": 50,
    "kubeAPIQPS": 50,
    "eventRecordQPS": 50,
    "cgroupsPerQOS": True,
    "failCgroupV1": True,
    "cpuCFSQuota": True,
    "cpuCFSQuotaPeriod": "100ms",
    "enforceNodeAllocatable": ["pods"],
    "makeIPTablesUtilChains": True,
    "iptablesMasqueradeBit": 14,
    "iptablesDropBit": 15,
    "failSwapOn": True,
    "memoryThrottlingFactor": 0.9,
    "oomScoreAdj": -999,
    "registryPullQPS": 5,
    "serializeImagePulls": True,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "mergeDefaultEvictionSettings": False,
}
"""Pointers upstream: only an absent field is unset, an explicit zero stays."""

VALUE_DEFAULTS: Final[Mapping[str, Json]] = {
    "address": "0.0.0.0",  # noqa: S104 - upstream listens everywhere
    "port": 10250,
    "authentication.webhook.cacheTTL": "2m0s",
    "authorization.mode": "Webhook",
    "authorization.webhook.cacheAuthorizedTTL": "5m0s",
    "authorization.webhook.cacheUnauthorizedTTL": "30s",
    "healthzBindAddress": "127.0.0.1",
    "streamingConnectionIdleTimeout": "4h0m0s",
    "logging.format": "text",
    "logging.flushFrequency": "5s",
    "syncFrequency": "1m0s",
    "fileCheckFrequency": "20s",
    "httpCheckFrequency": "20s",
    "maxPods": 110,
    "hairpinMode": "promiscuous-bridge",
    "podLogsDir": "/var/log/pods",
    "configMapAndSecretChangeDetectionStrategy": "Watch",
    "volumePluginDir": "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
    "containerLogMaxSize": "10Mi",
    "nodeStatusUpdateFrequency": "10s",
    "nodeStatusReportFrequency": "5m0s",
    "nodeLeaseDurationSeconds": 40,
    "contentType": "application/vnd.kubernetes.protobuf",
    "kubeAPIBurst": 100,
    "eventBurst": 100,
    "cgroupDriver": "cgroupfs",
    "cpuManagerPolicy": "none",
    "cpuManagerReconcilePeriod": "10s",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
    "maxOpenFiles": 1000000,
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "runtimeRequestTimeout": "2m0s",
    "registryBurst": 10,
    "imageMinimumGCAge": "2m0s",
    "volumeStatsAggPeriod": "1m0s",
    "imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages",
    "evictionPressureTransitionPeriod": "5m0s",
}
"""Plain values upstream: zero, "" and 0s are as good as absent."""

GATED_DEFAULTS: Final[Mapping[str, str]] = {
    "crashLoopBackOff.maxContainerRestartPeriod": "KubeletCrashLoopBackOffMax",
    "imagePullCredentialsVerificationPolicy": "KubeletEnsureSecretPulledImages",
}
"""Fields that stay unset when their gate is off."""

KEEPS_ZERO: Final = frozenset(
    (
        # Upstream leaves an empty list out when it writes the configuration, so the list does not survive that way.
        *(path for path in POINTER_DEFAULTS if path != "enforceNodeAllocatable"),
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
    for defaults, keeps_zero in ((POINTER_DEFAULTS, True), (VALUE_DEFAULTS, False)):
        for path, value in defaults.items():
            gate = GATED_DEFAULTS.get(path)
            if (gate is None or gates.enabled(gate)) and _is_unset(get_path(filled, path), keeps_zero=keeps_zero):
                _set_path(filled, path, value)
    if _is_parallel(fields) and fields.get("serializeImagePulls") is None:
        filled["serializeImagePulls"] = False
    if follows is not None:
        filled["nodeStatusReportFrequency"] = follows
    limit = filled["podPidsLimit"]
    filled["podPidsLimit"] = -1 if isinstance(limit, int) and limit < 0 else limit
    return filled


def default_configuration(gates: FeatureGates) -> KubeletConfiguration:
    """Return the configuration of an empty file, before its eviction thresholds."""
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


def _is_parallel(fields: JsonObject) -> bool:
    pulls = fields.get("maxParallelImagePulls")
    return isinstance(pulls, int) and pulls > 1


def _status_report_follows(fields: JsonObject) -> Json:
    """Return the report frequency when it is left to a given update frequency."""
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
