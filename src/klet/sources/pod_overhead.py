"""The overhead of runtime classes, added to pods that no API server has seen."""

from collections.abc import Mapping

from klet.api.node import RuntimeClass
from klet.api.pod import Pod
from klet.api.runtime_classes import add_overhead
from klet.model.roles import PodSink


class PodsWithOverhead:
    """Passes pods on with the overhead of their runtime classes, as the API server's admission adds it."""

    def __init__(self, *, classes: Mapping[str, RuntimeClass], sink: PodSink) -> None:
        self._classes = classes
        self._sink = sink

    def set_pods(self, source: str, pods: tuple[Pod, ...]) -> None:
        self._sink.set_pods(source, tuple(add_overhead(pod, self._classes) for pod in pods))
