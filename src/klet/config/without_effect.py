"""Settings that klet accepts but that have no effect yet: the table of them, and the warnings of `klet run` at start.

A change that implements a setting removes its row; `tests/unit/config/test_without_effect.py` demands it, and demands
a row for each setting that nothing reads.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from klet.config.configuration import KubeletConfiguration
from klet.config.configuration_flags import get_field
from klet.config.defaults import DEFAULT_EVICTION_HARD, default_configuration
from klet.config.flags import IGNORED_SECTION, KUBELET_FLAGS, KubeletFlags
from klet.config.flagvalues import FlagValue
from klet.config.gates import KNOWN_GATES, FeatureGates
from klet.config.unusable import named


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Row(Struct, frozen=True):
    """One setting, and what is missing."""

    name: str
    """The path of a field in KubeletConfiguration, or the name of a flag that no file can set."""
    missing: str
    is_partly: bool = False
    """Something acts upon it, but not what it promises."""
    honoured: object = None
    """The value, other than the default, that asks for what klet does anyway."""


_EVICTION: Final = "pods are not evicted"
_SHUTDOWN: Final = "pods are not stopped in order when the machine shuts down"
_JSON: Final = "klet speaks JSON to the API server: it is decoded in a third of the time that protobuf takes"
_IPTABLES: Final = "klet makes no rules of iptables"
_UPSTREAM: Final = "upstream's kubelet does not act upon it either"

FIELDS: Final = (
    Row("enableContentionProfiling", "klet profiles CPU time alone"),
    Row("streamingConnectionIdleTimeout", _UPSTREAM),
    Row("hairpinMode", _UPSTREAM),
    Row("contentType", _JSON, honoured="application/json"),
    Row("makeIPTablesUtilChains", _IPTABLES, honoured=False),
    Row("iptablesMasqueradeBit", _UPSTREAM),
    Row("iptablesDropBit", _UPSTREAM),
    Row("kernelMemcgNotification", _EVICTION),
    Row(
        "evictionHard",
        f"{_EVICTION}: it only lowers what the Node reports as allocatable",
        is_partly=True,
        honoured=DEFAULT_EVICTION_HARD,
    ),
    Row("evictionSoft", _EVICTION),
    Row("evictionSoftGracePeriod", _EVICTION),
    Row("evictionMinimumReclaim", _EVICTION),
    Row("evictionPressureTransitionPeriod", _EVICTION),
    Row("evictionMaxPodGracePeriod", _EVICTION),
    Row("shutdownGracePeriod", _SHUTDOWN),
    Row("shutdownGracePeriodCriticalPods", _SHUTDOWN),
    Row("shutdownGracePeriodByPodPriority", _SHUTDOWN),
)

FLAGS: Final = (
    Row("experimental-mounter-path", "klet mounts by itself"),
    *(Row(flag.name, "klet has no cAdvisor") for flag in KUBELET_FLAGS if flag.section == IGNORED_SECTION),
)

_CLIENT_GATES: Final = _names(
    """
    AllowParsingUserUIDFromCertAuth ClientsAllowCBOR ClientsPreferCBOR InOrderInformers InOrderInformersBatchProcess
    InformerResourceVersion StrictIPCIDRValidation WatchListClient
    """
)
"""Gates of libraries that upstream's kubelet is built with; klet has its own."""

IDLE_GATES: Final = _names(
    """
    DRAAdminAccess DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints
    DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus GenericWorkload
    InPlacePodVerticalScalingAllocatedStatus ProcMountType TopologyManagerPolicyAlphaOptions
    TopologyManagerPolicyBetaOptions VolumeLimitScaling
    """
)
"""Gates that upstream's kubelet knows and that change nothing in it: nothing to warn of.

Most are of the API server and the scheduler. The topology manager has no option that is alpha or beta.
"""

GATES: Final = _CLIENT_GATES | _names(
    """
    ChangeContainerStatusOnKubeletRestart
    ContextualLogging DRAExtendedResource EventedPLEG GitRepoVolumeDriver
    GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority InPlacePodLevelResourcesVerticalScaling
    InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory KubeletPodResourcesDynamicResources
    KubeletPodResourcesGet KubeletPodResourcesListUseActivePods KubeletRegistrationGetOnExistsOnly
    KubeletSeparateDiskGC PodAndContainerStatsFromCRI ReloadKubeletServerCertificateFile ResourceHealthStatus
    """
)
"""Gates that no code of klet reads: their feature is there, or is not there, independently of their value."""


def describe_without_effect(
    config: KubeletConfiguration, gates: FeatureGates, given: Mapping[str, FlagValue]
) -> Iterator[str]:
    """Name each setting of the table that is not at its default. `given` are the flags of the command line."""
    default = default_configuration(gates)
    for row in FIELDS:
        value = get_field(config, row.name)
        if value not in (get_field(default, row.name), row.honoured):
            yield _warn(named(row.name), row)
    for row in FLAGS:
        if row.name in given and given[row.name] != _default_of(row.name):
            yield _warn(f"--{row.name}", row)
    moved = sorted(name for name in GATES if gates.enabled(name) != KNOWN_GATES[name].default)
    if moved:
        shown = ", ".join(f"{name}={str(gates.enabled(name)).lower()}" for name in moved)
        yield f"{named('featureGates')}: klet does not ask about these gates yet: {shown}"


def _warn(name: str, row: Row) -> str:
    return f"{name}: {row.missing}" if row.is_partly else f"{name} has no effect yet: {row.missing}"


def _default_of(name: str) -> object:
    flag = next(flag for flag in KUBELET_FLAGS if flag.name == name)
    return getattr(KubeletFlags(), flag.field) if flag.field else flag.kind.parse(flag.default, None)
