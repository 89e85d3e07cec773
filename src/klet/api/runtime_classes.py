"""What a pod gets from its runtime class (upstream: the RuntimeClass admission plugin). Pure."""

from collections.abc import Mapping

from msgspec.structs import replace

from klet.api.defaults.containers import round_amounts
from klet.api.node import RuntimeClass
from klet.api.pod import Pod


def add_overhead(pod: Pod, classes: Mapping[str, RuntimeClass]) -> Pod:
    """Add the overhead of a pod's class; what the pod says itself holds, and an unknown class adds nothing."""
    found = classes.get(pod.spec.runtime_class_name or "")
    if found is None or found.overhead is None or pod.spec.overhead:
        return pod
    return replace(pod, spec=replace(pod.spec, overhead=round_amounts(found.overhead.pod_fixed)))
