"""The common base of configMap, secret, downwardAPI and projected: the agent writes their files and updates them."""

from abc import abstractmethod
from datetime import datetime
from typing import ClassVar

from msgspec import Struct

from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.atomic_writer import Payload
from klet.volumes.generated_files import GeneratedFiles
from klet.volumes.media import IN_MEMORY
from klet.volumes.plugins.base import GENERATED_FILES, MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.spec import VolumeSpec


class Content(Struct, frozen=True):
    """The files of a volume, and when they expire without a change of their source, as tokens do."""

    payload: Payload
    old_at: datetime | None = None


class GeneratedFilesPlugin(VolumePlugin):
    """Collects all data of a volume first, and then writes the files."""

    requires_remount = True
    usage_source = UsageSource.DU
    medium: ClassVar[str] = IN_MEMORY

    def __init__(self, *, files: GeneratedFiles) -> None:
        self._files = files

    @abstractmethod
    async def collect(self, request: MountRequest) -> Content:
        """Return everything that goes into the volume; nothing is written yet."""

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:  # noqa: ARG002 - the same for all of them
        return GENERATED_FILES

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._files.path(uid, self.name, spec.name))

    async def set_up(self, request: MountRequest) -> datetime | None:
        content = await self.collect(request)
        clear_at = await self._files.write(request, self.name, content.payload, medium=self.medium)
        return min((at for at in (content.old_at, clear_at) if at is not None), default=None)

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._files.remove(uid, self.name, name)
