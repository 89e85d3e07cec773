"""The signals of the API as the CRI names them: `SIGRTMIN+1` is `SIGRTMINPLUS1` there."""

from klet.api.container import Container, EphemeralContainer
from klet.wire import cri_v1_pb2 as cri

RUNTIME_DEFAULT = "RUNTIME_DEFAULT"
_API_NAMES = {
    name: name.replace("PLUS", "+").replace("MINUS", "-") for name, _ in cri.Signal.items() if name != RUNTIME_DEFAULT
}
_CRI_NAMES = {shown: name for name, shown in _API_NAMES.items()}
_BY_NUMBER = {number: _API_NAMES.get(name, "") for name, number in cri.Signal.items()}


def wanted_stop_signal(container: Container | EphemeralContainer) -> str:
    """Return the CRI's name of the signal that is to stop a container; the runtime's default if it asks for none."""
    lifecycle = container.lifecycle
    name = lifecycle.stop_signal if lifecycle is not None else None
    return _CRI_NAMES.get(name or "", RUNTIME_DEFAULT)


def read_stop_signal(container: cri.ContainerStatus) -> str:
    """Return the API's name of the signal with which the runtime stops a container; empty if it reports none."""
    return _BY_NUMBER.get(container.stop_signal, "")
