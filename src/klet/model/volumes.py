"""A volume as containers mount it: made by the volume manager, read by the container's configuration."""

from msgspec import Struct

SUB_PATHS = "volume-subpaths"
"""The directory in that of a pod where parts of its volumes (`subPath`) are mounted."""


class HostVolume(Struct, frozen=True):
    """A volume of the pod, ready to be mounted."""

    path: str
    """On the host; empty for one that only the runtime sees."""
    read_only: bool = False
    """Containers may only read it, whatever they ask for: a link in it must not become a way to write elsewhere."""
    relabels: bool = False
    """Its SELinux label may be changed, because it is there for the pod alone."""
