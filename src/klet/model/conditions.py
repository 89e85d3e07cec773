"""The words of conditions, the same for pods and nodes."""

from typing import Final

READY: Final = "Ready"
TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"
