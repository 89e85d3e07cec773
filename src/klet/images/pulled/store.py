"""Intents and records on disk, with the names of all files and the records used last in memory (PullRecordsAccessor).

One process writes them: what is in memory is what is on disk, and an image without a record costs no read.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final

from klet.host.errors import FileError
from klet.images.pulled.files import PullDirectory, PullFiles
from klet.images.pulled.format import (
    BadPullFile,
    ImagePulledRecord,
    ImagePullIntent,
    decode_intent,
    decode_record,
    encode_intent,
    encode_record,
    file_name,
    is_older,
)

logger = logging.getLogger(__name__)

PULLING: Final = PullDirectory.PULLING
PULLED: Final = PullDirectory.PULLED


class PullRecordStore:
    """Keeps at most so many records in memory. Written by PulledImages only."""

    def __init__(self, *, files: PullFiles, most_cached: int) -> None:
        self._files = files
        self._most_cached = most_cached
        self._names: dict[PullDirectory, set[str] | None] = {PULLING: None, PULLED: None}
        """None if they are not known: then the disk is asked each time."""
        self._cached: OrderedDict[str, ImagePulledRecord] = OrderedDict()

    async def open(self) -> None:
        """Learn which files there are; raises nothing: a directory that cannot be listed is asked file by file."""
        for directory in PullDirectory:
            try:
                names = await self._files.names(directory)
            except FileError as error:
                logger.warning("Records of pulled images cannot be listed", extra={"error": str(error)})
                continue
            self._names[directory] = None if names is None else set(names)

    def count(self, directory: PullDirectory) -> int:
        """Return how many files there are, as far as is known."""
        return len(self._names[directory] or ())

    def cached(self) -> int:
        return len(self._cached)

    async def has_intent(self, image: str) -> bool:
        """Return whether a pull of the image began and its end is not recorded; raises FileError, BadPullFile."""
        data = await self._read(PULLING, file_name(image))
        return data is not None and decode_intent(data).image == image

    async def intents(self) -> AsyncIterator[ImagePullIntent]:
        """Yield all intents that can be read; the others are logged, and stay."""
        for name in sorted(self._names[PULLING] or ()):
            try:
                data = await self._read(PULLING, name)
                if data is not None:
                    yield decode_intent(data)
            except (FileError, BadPullFile) as error:
                log_bad_file("An intent to pull an image cannot be read", name, error)

    async def records(self) -> AsyncIterator[ImagePulledRecord]:
        """Yield all records that can be read; the others are logged, and stay: who uses such an image must pull it."""
        for name in sorted(self._names[PULLED] or ()):
            try:
                data = await self._read(PULLED, name)
                if data is None:
                    continue
                record = decode_record(data)
            except (FileError, BadPullFile) as error:
                log_bad_file("A record of a pulled image cannot be read", name, error)
                continue
            if file_name(record.image_ref) == name:
                yield record

    async def upgrade(self) -> None:
        """Write files of older versions again."""
        async for intent in self.intents():
            if is_older(intent):
                await self.add_intent(intent.image)
        async for record in self.records():
            if is_older(record):
                await self.put(record)

    async def add_intent(self, image: str) -> None:
        await self._write(PULLING, file_name(image), encode_intent(image))

    async def drop_intent(self, image: str) -> None:
        await self._remove(PULLING, file_name(image))

    async def record(self, ref: str) -> ImagePulledRecord | None:
        """Return the record of an image, None if the file is about another; raises FileError, BadPullFile."""
        cached = self._cached.get(ref)
        if cached is not None:
            self._cached.move_to_end(ref)
            return cached
        data = await self._read(PULLED, file_name(ref))
        if data is None:
            return None
        record = decode_record(data)
        if record.image_ref != ref:
            return None
        self._cache(record)
        return record

    async def put(self, record: ImagePulledRecord) -> None:
        # Out of memory first: a write that fails or is cancelled may have happened or not.
        self._cached.pop(record.image_ref, None)
        await self._write(PULLED, file_name(record.image_ref), encode_record(record))
        self._cache(record)

    async def remove(self, ref: str) -> None:
        self._cached.pop(ref, None)
        await self._remove(PULLED, file_name(ref))

    def _cache(self, record: ImagePulledRecord) -> None:
        self._cached[record.image_ref] = record
        self._cached.move_to_end(record.image_ref)
        while len(self._cached) > self._most_cached:
            self._cached.popitem(last=False)

    async def _read(self, directory: PullDirectory, name: str) -> bytes | None:
        names = self._names[directory]
        if names is not None and name not in names:
            return None
        return await self._files.read(directory, name)

    async def _write(self, directory: PullDirectory, name: str, data: bytes) -> None:
        # Known before it is there: a write whose caller is cancelled goes on.
        if (names := self._names[directory]) is not None:
            names.add(name)
        await self._files.write(directory, name, data)

    async def _remove(self, directory: PullDirectory, name: str) -> None:
        await self._files.remove(directory, name)
        if (names := self._names[directory]) is not None:
            names.discard(name)


def log_bad_file(message: str, name: str, error: Exception) -> None:
    logger.warning(message, extra={"file": name, "error": str(error)})
