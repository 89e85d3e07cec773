"""The words of conditions, the same for pods and nodes, and a type that several packages set."""

from typing import Final

READY: Final = "Ready"
TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"
DISRUPTION_TARGET: Final = "DisruptionTarget"
