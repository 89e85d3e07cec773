"""Features that a node declares in its status, and pods that need one which it does not (node declared features). Pure.

Schedulers and API servers of a cluster with mixed nodes read the list; the node checks once more what they bound to it.
Upstream: component-helpers' nodedeclaredfeatures.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klet.api.pod import Pod
from klet.api.quantity import ZERO, Quantity
from klet.model.pod_resources import CPU
from klet.model.qos import QosClass
from klet.model.reasons import Reason
from klet.model.verdicts import Admit, Reject, Verdict

CPU_RESIZE: Final = "GuaranteedQoSPodCPUResize"
POD_RESIZE: Final = "InPlacePodLevelResourcesVerticalScaling"
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
NOT_BUILT: Final = frozenset({CPU_RESIZE})
"""What upstream's kubelet can do whatever its gates are, and klet cannot yet. Declared, it would be asked for."""
_EXCLUSIVE_CPU_RESIZE: Final = "InPlacePodVerticalScalingExclusiveCPUs"
_RESTART_ALL_ACTION: Final = "RestartAllContainers"


def discover_features(is_enabled: Callable[[str], bool], *, cpu_policy: str) -> tuple[str, ...]:
    """Return what a node declares, by its gates and the policy of its CPU manager, in alphabetical order."""
    resizes_exclusive = cpu_policy == "static" and is_enabled(_EXCLUSIVE_CPU_RESIZE)
    found = {
        CPU_RESIZE: cpu_policy == "none" or resizes_exclusive,
        POD_RESIZE: is_enabled(POD_RESIZE),
        RESTART_ALL: is_enabled(RESTART_ALL),
    }
    return tuple(sorted(name for name, is_there in found.items() if is_there))


def find_missing(pod: Pod, declared: Sequence[str]) -> tuple[str, ...]:
    """Return the features that a pod needs to run and the node does not declare."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    rules = (rule for container in containers for rule in container.restart_policy_rules)
    needs_restart_all = any(rule.action == _RESTART_ALL_ACTION for rule in rules)
    return (RESTART_ALL,) if needs_restart_all and RESTART_ALL not in declared else ()


def find_missing_for_update(old: Pod, new: Pod, declared: Sequence[str]) -> tuple[str, ...]:
    """Return the features that a change of a pod needs and the node does not declare."""
    return tuple(name for name in _needed_for_update(old, new) if name not in declared)


def describe_missing(missing: Sequence[str]) -> str:
    return f"Pod requires node features that are not available: {', '.join(missing)}"


class DeclaredFeatureCheck:
    """The check as an admission handler."""

    def __init__(self, *, declared: Sequence[str]) -> None:
        self._declared = tuple(declared)

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:  # noqa: ARG002 - one pod decides it
        missing = find_missing(pod, self._declared)
        return Reject(Reason.POD_FEATURE_UNSUPPORTED, describe_missing(missing)) if missing else Admit()


def _needed_for_update(old: Pod, new: Pod) -> Iterator[str]:
    if old.status.qos_class == QosClass.GUARANTEED and _cpu_requests(old) != _cpu_requests(new):
        yield CPU_RESIZE
    if old.spec.resources != new.spec.resources:
        yield POD_RESIZE


def _cpu_requests(pod: Pod) -> list[Quantity]:
    return [container.resources.requests.get(CPU, ZERO) for container in pod.spec.containers]
