"""Optional features of pods: each is a feature gate, asked once and handed to the parts that act upon it."""

from msgspec import Struct


class PodFeatures(Struct, frozen=True, kw_only=True):
    """Which features are on. The defaults are upstream's."""

    stop_signals: bool = False
    """ContainerStopSignals: a container may choose the signal that stops it."""
    restart_all: bool = False
    """RestartAllContainersOnContainerExits: the exit of one container may restart all containers of its pod."""
    taint_comparisons: bool = False
    """TaintTolerationComparisonOperators: a toleration may compare numbers."""
    ready_to_start: bool = True
    """PodReadyToStartContainersCondition: a pod has a condition for its sandbox and network."""


DEFAULT_FEATURES = PodFeatures()
