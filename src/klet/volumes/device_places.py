"""Where devices are mounted for all pods: below the agent's `plugins`. Pure.

The names come from API objects, or from a mount table that was written with them; each is one plain name or refused.
"""

from pathlib import Path

from msgspec import Struct

from klet.host.files import is_plain_name
from klet.volumes.errors import VolumeSetupError
from klet.volumes.names import Layout


class DevicePlace(Struct, frozen=True):
    """A directory below `plugins`."""

    plugins: Path
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.plugins.joinpath(*self.names)


def build_place(layout: Layout, directory: str, *names: str) -> DevicePlace:
    """Return a place in the directory of a plugin (`kubernetes.io/iscsi`); raises VolumeSetupError for a bad name."""
    for name in names:
        if not is_plain_name(name):
            raise VolumeSetupError(f"{name[:255]!r} cannot be the name of a directory")
    return DevicePlace(layout.plugins, (*directory.split("/"), *names))


def read_place(layout: Layout, directory: str, path: str, *, depth: int) -> DevicePlace:
    """Return the place that a path names: exactly so many names below the directory of a plugin, or an error."""
    place = build_place(layout, directory)
    try:
        names = Path(path).relative_to(place.path).parts
    except ValueError as error:
        raise VolumeSetupError(f"{path} is not below {place.path}") from error
    if len(names) != depth:
        raise VolumeSetupError(f"{path} is not {depth} names below {place.path}")
    return build_place(layout, directory, *names)
