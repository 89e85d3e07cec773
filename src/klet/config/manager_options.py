"""Rules of the CPU, memory and topology managers for their policies and options; upstream has them in each manager."""

from collections.abc import Mapping
from typing import Final

from klet.api.quantity import ZERO
from klet.api.validation.rendering import go_quote
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError, prefixed
from klet.config.flagvalues import parse_bool, parse_integer
from klet.config.gates import FeatureGates
from klet.config.reserved import effective_reservations

FULL_CORES: Final = "full-pcpus-only"
STRICT: Final = "strict-cpu-reservation"
ACROSS_NUMA: Final = "distribute-cpus-across-numa"
ACROSS_CORES: Final = "distribute-cpus-across-cores"
BY_CACHE: Final = "prefer-align-cpus-by-uncorecache"
BY_SOCKET: Final = "align-by-socket"
CLOSEST: Final = "prefer-closest-numa-nodes"
MOST_NODES: Final = "max-allowable-numa-nodes"

FEWEST_NODES: Final = 8
_CPU_STAGES: Final[Mapping[str, str]] = {
    FULL_CORES: "",
    STRICT: "",
    ACROSS_NUMA: "Beta",
    BY_CACHE: "Beta",
    ACROSS_CORES: "Alpha",
    BY_SOCKET: "Alpha",
}
_CONFLICTS: Final = (
    (FULL_CORES, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (BY_CACHE, ACROSS_CORES),
    (BY_CACHE, ACROSS_NUMA),
)
_OPTIONS_GATE: Final = "TopologyManagerPolicyOptions"
_SINGLE_NODE: Final = "single-numa-node"


def check_managers(config: KubeletConfiguration, gates: FeatureGates) -> None:
    """Raise ConfigError for the first policy or option that its manager would refuse."""
    with prefixed("topologyManagerPolicyOptions (--topology-manager-policy-options): "):
        _check_topology(config, gates)
    _check_cpu(config, gates)
    _check_memory(config)


def _check_topology(config: KubeletConfiguration, gates: FeatureGates) -> None:
    options = config.topology_manager_policy_options
    if options and not gates.enabled(_OPTIONS_GATE):
        shown = " ".join(f"{name}:{value}" for name, value in sorted(options.items()))
        raise ConfigError(
            f"topology manager policy options map[{shown}] require feature gates {go_quote(_OPTIONS_GATE)} enabled"
        )
    if config.topology_manager_policy == "none":
        # Upstream does not look at the options of this policy.
        return
    for name, value in sorted(options.items()):
        if name == CLOSEST:
            _flag(name, value)
        elif name == MOST_NODES:
            _check_most_nodes(value)
        else:
            raise ConfigError(
                f"unknown Topology Manager Policy option: {go_quote(name)}, {_known(CLOSEST, MOST_NODES)}"
            )


def _check_most_nodes(value: str) -> None:
    try:
        count = parse_integer(value, low=-(2**31), high=2**31 - 1, function="Atoi")
    except ConfigError as error:
        raise ConfigError(f"unable to convert policy option to integer {go_quote(MOST_NODES)}: {error}") from error
    if count < FEWEST_NODES:
        raise ConfigError(f"the minimum value of {go_quote(MOST_NODES)} should not be less than {FEWEST_NODES}")


def _check_cpu(config: KubeletConfiguration, gates: FeatureGates) -> None:
    options = config.cpu_manager_policy_options
    match config.cpu_manager_policy:
        case "none":
            if options:
                shown = " ".join(f"{name}:{value}" for name, value in sorted(options.items()))
                raise ConfigError(
                    f"new none policy error: None policy: received unsupported options=map[{shown}]: "
                    "cpuManagerPolicyOptions (--cpu-manager-policy-options) is for cpuManagerPolicy static"
                )
        case "static":
            with prefixed("new static policy error: "):
                with prefixed("cpuManagerPolicyOptions (--cpu-manager-policy-options): "):
                    _check_cpu_options(options, gates, topology=config.topology_manager_policy)
                _check_reserved_cpu(config)
        case policy:
            raise _unknown("cpuManagerPolicy (--cpu-manager-policy)", policy, "none", "static")


def _check_cpu_options(options: Mapping[str, str], gates: FeatureGates, *, topology: str) -> None:
    chosen: set[str] = set()
    for name, value in sorted(options.items()):
        if name not in _CPU_STAGES:
            raise ConfigError(f"unknown CPU Manager Policy option: {go_quote(name)}, {_known(*_CPU_STAGES)}")
        stage = _CPU_STAGES[name]
        if stage and not gates.enabled(f"CPUManagerPolicy{stage}Options"):
            gate = f"switch on feature gate CPUManagerPolicy{stage}Options"
            raise ConfigError(
                f"CPU Manager Policy {stage}-level Options not enabled, but option {go_quote(name)} provided: {gate}"
            )
        if _flag(name, value):
            chosen.add(name)
    for one, other in _CONFLICTS:
        if {one, other} <= chosen:
            raise ConfigError(f"static policy options {one} and {other} can not be used at the same time")
    if BY_SOCKET in chosen and topology == _SINGLE_NODE:
        raise ConfigError(
            "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
        )


def _check_reserved_cpu(config: KubeletConfiguration) -> None:
    system, kube = effective_reservations(config)
    advice = "set cpu in systemReserved or kubeReserved, or reservedSystemCPUs"
    if "cpu" not in system and "cpu" not in kube:
        raise ConfigError(f"[cpumanager] unable to determine reserved CPU resources for static policy: {advice}")
    if system.get("cpu", ZERO).is_zero and kube.get("cpu", ZERO).is_zero:
        raise ConfigError(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero: "
            f"{advice}"
        )


def _check_memory(config: KubeletConfiguration) -> None:
    match config.memory_manager_policy:
        case "None":
            pass
        case "Static":
            if not any("memory" in reservation.limits for reservation in config.reserved_memory):
                raise ConfigError(
                    "[memorymanager] you should specify the system reserved memory: "
                    "set reservedMemory (--reserved-memory) for memoryManagerPolicy Static"
                )
        case "BestEffort":
            raise ConfigError(
                'policy "BestEffort" is not available for platform "linux": '
                "write None or Static in memoryManagerPolicy (--memory-manager-policy)"
            )
        case policy:
            raise _unknown("memoryManagerPolicy (--memory-manager-policy)", policy, "None", "Static")


def _flag(name: str, value: str) -> bool:
    try:
        return parse_bool(value)
    except ConfigError as error:
        raise ConfigError(f"bad value for option {go_quote(name)}: {error}") from error


def _known(*names: str) -> str:
    return f"write one of {', '.join(names)}"


def _unknown(field: str, policy: str, *known: str) -> ConfigError:
    return ConfigError(f"unknown policy: {go_quote(policy)}, write {' or '.join(known)} in {field}")
