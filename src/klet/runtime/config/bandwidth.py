"""How fast a pod may send and receive: two annotations, which the runtime hands to the network plugin. Pure.

The runtime reads them from the sandbox's annotations and gives them to the CNI plugins with the capability `bandwidth`
(upstream: ExtractPodBandwidthResources). They are checked before that, so that the Event names the annotation.
"""

from typing import Final

from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.runtime.errors import SandboxConfigError

INGRESS: Final = "kubernetes.io/ingress-bandwidth"
EGRESS: Final = "kubernetes.io/egress-bandwidth"
_LEAST: Final = 1000
_MOST: Final = 10**15
"""Bits per second."""


def check_bandwidth(pod: Pod) -> None:
    """Raise SandboxConfigError for a limit that is none. A pod on the host's network has no limit of its own."""
    if pod.spec.host_network:
        return
    for name in (INGRESS, EGRESS):
        text = pod.metadata.annotations.get(name)
        if text is not None and (problem := _find_problem(text)):
            raise SandboxConfigError(f'reading pod bandwidth annotations: {name} "{text}": {problem}')


def _find_problem(text: str) -> str:
    try:
        bits = Quantity.parse(text).value()
    except ValueError as error:
        return str(error)
    if bits < _LEAST:
        return "resource is unreasonably small (< 1kbit)"
    return "resource is unreasonably large (> 1Pbit)" if bits > _MOST else ""
