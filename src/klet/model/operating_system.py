"""The operating system of this node, as labels and specs name it."""

from typing import Final

OS_LABEL: Final = "kubernetes.io/os"
LINUX: Final = "linux"
