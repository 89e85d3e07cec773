"""Volumes that a controller attaches to the node: their names, and those of a previous run of the agent.

The node's status says which of them are in use. The controller detaches none of these, so a volume that the status has
not named yet is not set up.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from klet.errors import KletError
from klet.model.causes import FindingSubject
from klet.model.pods import PodUID
from klet.volumes.disk import FoundVolume
from klet.volumes.names import MountKey, VolumeName
from klet.volumes.plugins.base import AttachablePlugin, VolumePlugin
from klet.volumes.spec import VolumeSpec
from klet.volumes.state import ActualMount, DesiredMount, MountState

logger = logging.getLogger(__name__)


class FoundVolumes(Protocol):
    """Finds the volumes of pods on disk, also those of a previous run of the agent."""

    async def pods(self) -> Sequence[PodUID]: ...

    async def find(self, uid: PodUID) -> Sequence[FoundVolume]: ...


def key_of(plugin: VolumePlugin, uid: PodUID, spec: VolumeSpec) -> tuple[MountKey, bool]:
    """Return the key of a pod's volume, and whether that has to be attached."""
    name = plugin.node_name_of(spec) if isinstance(plugin, AttachablePlugin) else None
    return _key(name, plugin, uid, spec.name), name is not None


async def read_leftover(plugin: VolumePlugin, uid: PodUID, found: FoundVolume) -> ActualMount:
    """Return what a previous run of the agent left of a volume, whole or in part."""
    name = await plugin.found_name(uid, found.name) if isinstance(plugin, AttachablePlugin) else None
    return ActualMount(
        key=_key(name, plugin, uid, found.name),
        plugin=plugin,
        name=found.name,
        state=MountState.UNCERTAIN,
        subject=FindingSubject(uid=uid),
        is_attachable=name is not None,
    )


async def find_attached(plugins: Mapping[str, VolumePlugin], disk: FoundVolumes) -> list[ActualMount]:
    """Return the attached volumes of a previous run. One that cannot be read is logged, and hides no other."""
    mounts: list[ActualMount] = []
    if not any(isinstance(plugin, AttachablePlugin) for plugin in plugins.values()):
        return mounts
    try:
        uids = await disk.pods()
    except KletError as error:
        logger.warning("The volumes of a previous run cannot be found", extra={"error": str(error)})
        return mounts
    for uid in uids:
        try:
            for found in await disk.find(uid):
                plugin = plugins.get(found.plugin)
                if isinstance(plugin, AttachablePlugin):
                    mounts.append(await read_leftover(plugin, uid, found))
        except KletError as error:
            logger.warning("A volume of a previous run cannot be read", extra={"uid": uid, "error": str(error)})
    return [mount for mount in mounts if mount.is_attachable]


def list_in_use(desired: Iterable[DesiredMount], actual: Iterable[ActualMount]) -> tuple[VolumeName, ...]:
    """Return what the node's status reports: the volumes that pods should have, have or may have, sorted."""
    mounts: tuple[DesiredMount | ActualMount, ...] = (*desired, *actual)
    return tuple(sorted({mount.key.volume for mount in mounts if mount.is_attachable}))


def _key(name: VolumeName | None, plugin: VolumePlugin, uid: PodUID, volume: str) -> MountKey:
    return MountKey(plugin.unique_name(uid, volume) if name is None else name, uid)
