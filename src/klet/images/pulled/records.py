"""Records which images the agent has pulled and with whose credentials, and checks pods by that (image pull manager).

Before a pull an intent is on disk, after it a record, then the intent is dropped. An agent that is killed in between
leaves the intent, and with it the knowledge that the image may have come from a pull: nobody uses it unchecked.
"""

import asyncio
import logging
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.cri.errors import CriError
from klet.cri.port import ImageService
from klet.errors import KletError
from klet.host.errors import FileError
from klet.images.names import ImageNameError, repository_of, with_default_tag
from klet.images.pulled.format import (
    SIZE_LIMIT,
    BadPullFile,
    ImagePullCredentials,
    ImagePulledRecord,
    encode_record,
    new_record,
    whole_seconds,
)
from klet.images.pulled.store import PullRecordStore
from klet.images.pulled.verification import (
    Check,
    VerificationRules,
    check_credentials,
    check_record,
    credentials_of,
    merge_record,
)
from klet.images.sources import LoginSource
from klet.metrics import Counter
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)


UNCERTAIN_FOR: Final = timedelta(days=1)
"""After so long, an image has come or will not come any more from a pull that ended without a clear answer."""


class _Uncertain(Struct, frozen=True):
    before: str
    """What was there under the name before the pull; empty for nothing, and if that is not known."""
    since: float


class RecordedPull:
    """A pull whose intent is on disk."""

    def __init__(self, *, records: "PulledImages", image: str, before: str) -> None:
        self._records = records
        self.image = image
        self.before = before
        self.is_open = True

    async def succeeded(self, ref: str, source: LoginSource | None) -> None:
        await self._records.end_pull(self, ref, credentials_of(source))

    async def failed(self) -> None:
        await self._records.drop_pull(self)


class PulledImages:
    """Keeps intents and records, and decides by them who must pull an image that is there."""

    def __init__(
        self,
        *,
        store: PullRecordStore,
        images: ImageService,
        rules: VerificationRules,
        checks: Counter,
        clock: Clock,
    ) -> None:
        self._store = store
        self._images = images
        self._rules = rules
        self._checks = checks
        self._clock = clock
        self._pulling: Tally[str] = Tally()
        self._noted: set[str] = set()
        """Images whose intent this process has written and not dropped."""
        self._uncertain: dict[str, _Uncertain] = {}
        """Images whose pull ended without a clear answer."""
        self._changing = asyncio.Lock()
        """Held from the read of a record to its write."""
        self._preparing = asyncio.Lock()
        self._is_prepared = False

    async def run(self) -> None:
        """Settle what the previous run left; ends when that is done."""
        await self.prepare()
        async with self._changing:
            try:
                await self._store.upgrade()
            except FileError as error:
                logger.warning("Records of pulled images are not written again", extra={"error": str(error)})

    def pulls_in_flight(self) -> int:
        """Return how many images are being pulled."""
        return len(self._pulling)

    async def prepare(self) -> None:
        """Turn intents of the previous run into records, where their images are there. Only the first call does it."""
        if self._is_prepared:
            return
        async with self._preparing:
            if not self._is_prepared:
                self._is_prepared = await self._settle_intents()

    @asynccontextmanager
    async def pulling(self, image: str, *, before: str) -> AsyncIterator[RecordedPull]:
        """Have an intent on disk while an image is pulled; raises FileError if it cannot be written."""
        pull = RecordedPull(records=self, image=image, before=before)
        self._pulling[image] += 1
        has_begun = False
        try:
            async with self._changing:
                if image not in self._noted:
                    await self._store.add_intent(image)
                    self._noted.add(image)
            has_begun = True
            yield pull
        finally:
            if pull.is_open:
                self._close(pull)
                if has_begun:
                    self._note_uncertain(image, before)

    async def end_pull(self, pull: RecordedPull, ref: str, credentials: ImagePullCredentials) -> None:
        async with self._changing:
            try:
                await self._write(pull.image, ref, credentials, is_pulled=True)
            except FileError as error:
                # The intent stays, so that the next pod has to pull.
                logger.warning("Pulled image not recorded", extra={"image": pull.image, "error": str(error)})
                return
            self._close(pull)
            self._uncertain.pop(pull.image, None)
            await self._drop_intent(pull.image)

    async def drop_pull(self, pull: RecordedPull) -> None:
        async with self._changing:
            self._close(pull)
            if pull.image not in self._uncertain:
                await self._drop_intent(pull.image)

    async def check(self, image: str, ref: str, find_sources: Callable[[], Awaitable[Sequence[LoginSource]]]) -> Check:
        """Return whether a pod may use an image that is there; `find_sources` is asked if its credentials decide.

        Raises what that raises.
        """
        repository = repository_of(image)
        try:
            record = await self._store.record(ref)
            is_pulled_here = record is not None or await self._was_pulled(image, ref)
        except (FileError, BadPullFile) as error:
            # The file stays: without it the image would count as one that nobody pulled, and all could use it.
            logger.warning("Record of an image cannot be read", extra={"image": image, "error": str(error)})
            return self._count(Check.ERROR)
        found = check_record(self._rules, image, repository, record, is_pulled_here=is_pulled_here)
        if isinstance(found, Check):
            return self._count(found)
        try:
            offered = await find_sources()
        except KletError:
            self._count(Check.ERROR)
            raise
        compared = check_credentials(found, offered)
        if compared.learned is not None:
            await self._learn(image, ref, credentials_of(compared.learned))
        return self._count(compared.outcome)

    async def prune(self, *, remaining: Collection[str], before: datetime) -> None:
        """Remove the records of images that are gone: those that are not among the remaining and older than that.

        Pulls that ended without a clear answer long ago are settled, too: their intents would never go.
        """
        async with self._changing:
            gone = [
                record.image_ref
                async for record in self._store.records()
                if record.image_ref not in remaining
                and (record.last_updated_time is None or record.last_updated_time < before)
            ]
            for ref in gone:
                try:
                    await self._store.remove(ref)
                except FileError as error:
                    logger.warning("Record of an image not removed", extra={"error": str(error)})
        await self._settle_uncertain()

    async def _settle_intents(self) -> bool:
        await self._store.open()
        # In a list, as they are dropped meanwhile; an image that is being pulled again settles itself.
        left = [intent.image async for intent in self._store.intents()]
        left = [image for image in left if image not in self._pulling and image not in self._uncertain]
        if not left:
            return True
        try:
            images = (await self._images.list_images(cri.ListImagesRequest())).images
        except CriError as error:
            logger.warning("Images whose pulls were interrupted are not known yet", extra={"error": str(error)})
            return False
        by_name = _index(images)
        async with self._changing:
            for image in left:
                try:
                    await self._settle_intent(image, by_name.get(_full_name(image), frozenset()))
                except FileError as error:
                    logger.warning("Intent to pull not settled", extra={"image": image, "error": str(error)})
        return True

    async def _settle_uncertain(self) -> None:
        latest = self._clock.monotonic() - UNCERTAIN_FOR.total_seconds()
        if not any(known.since <= latest for known in self._uncertain.values()):
            return
        try:
            images = (await self._images.list_images(cri.ListImagesRequest())).images
        except CriError as error:
            logger.debug("Uncertain pulls are not settled", extra={"error": str(error)})
            return
        by_name = _index(images)
        async with self._changing:
            old = {image: known for image, known in self._uncertain.items() if known.since <= latest}
            for image, known in old.items():
                if image in self._pulling or self._uncertain.get(image) is not known:
                    continue
                try:
                    await self._allow_nobody(by_name.get(_full_name(image), set()) - {known.before})
                except FileError as error:
                    logger.warning("Intent to pull not settled", extra={"image": image, "error": str(error)})
                    continue
                if image not in self._pulling:
                    self._uncertain.pop(image, None)
                    await self._drop_intent(image)

    async def _settle_intent(self, image: str, refs: Iterable[str]) -> None:
        if await self._allow_nobody(refs):
            await self._store.drop_intent(image)
        else:
            # It may still come: the runtime need not have given up a pull whose caller is gone.
            self._uncertain.setdefault(image, _Uncertain("", self._clock.monotonic()))

    async def _allow_nobody(self, refs: Iterable[str]) -> bool:
        """Give images that may have come from an interrupted pull a record without credentials; False for none."""
        found = False
        for ref in refs:
            found = True
            if await self._readable_record(ref) is None:
                await self._store.put(new_record(ref, {}, now=self._clock.now()))
        return found

    async def _was_pulled(self, image: str, ref: str) -> bool:
        """Return whether an image without a record may have come from a pull all the same."""
        if image in self._pulling:
            return True
        if not await self._store.has_intent(image):
            return False
        if not self._has_changed_nothing(image, ref):
            return True
        # The pull has changed nothing: the image was there before it.
        async with self._changing:
            if image in self._pulling or not self._has_changed_nothing(image, ref):
                return True
            del self._uncertain[image]
            await self._drop_intent(image)
        return False

    def _has_changed_nothing(self, image: str, ref: str) -> bool:
        known = self._uncertain.get(image)
        return known is not None and known.before == ref

    async def _learn(self, image: str, ref: str, credentials: ImagePullCredentials) -> None:
        async with self._changing:
            try:
                await self._write(image, ref, credentials, is_pulled=False)
            except FileError as error:
                logger.warning("Record of an image not updated", extra={"image": image, "error": str(error)})

    async def _write(self, image: str, ref: str, credentials: ImagePullCredentials, *, is_pulled: bool) -> None:
        """Merge the credentials into the record of an image. The lock is held.

        After a pull the record gets a new date even if it learns nothing: a collection that began before, and saw or
        left the image gone, would drop it as old, and the image would be everybody's.
        """
        repository, now = repository_of(image), self._clock.now()
        known = await self._readable_record(ref)
        fresh = new_record(ref, {repository: credentials}, now=now)
        record = fresh if known is None else merge_record(known, repository, credentials)
        if record is known and not is_pulled:
            return
        if len(encode_record(record)) > SIZE_LIMIT:
            # One that is longer could not be read again. Pods that are not in it pull once, and are.
            record = fresh
        await self._store.put(replace(record, last_updated_time=whole_seconds(now)))

    async def _readable_record(self, ref: str) -> ImagePulledRecord | None:
        try:
            return await self._store.record(ref)
        except (FileError, BadPullFile) as error:
            logger.warning("Record of an image is replaced", extra={"error": str(error)})
            return None

    async def _drop_intent(self, image: str) -> None:
        """Drop an intent unless the image is being pulled. The lock is held."""
        if image in self._pulling:
            return
        self._noted.discard(image)
        try:
            await self._store.drop_intent(image)
        except FileError as error:
            logger.warning("Intent to pull not removed", extra={"image": image, "error": str(error)})

    def _note_uncertain(self, image: str, before: str) -> None:
        """Note a pull that was cancelled, or lost its connection to the runtime: its image may come all the same."""
        known = self._uncertain.get(image)
        is_same = known is None or known.before == before
        self._uncertain[image] = _Uncertain(before if is_same else "", self._clock.monotonic())

    def _close(self, pull: RecordedPull) -> None:
        pull.is_open = False
        self._pulling[pull.image] -= 1
        if not self._pulling[pull.image]:
            del self._pulling[pull.image]

    def _count(self, outcome: Check) -> Check:
        self._checks.add(outcome.value)
        return outcome


def _index(images: Iterable[cri.Image]) -> dict[str, set[str]]:
    """Return the images by their tags and digests, by full names."""
    found: dict[str, set[str]] = {}
    for image in images:
        for name in (*image.repo_tags, *image.repo_digests):
            found.setdefault(_full_name(name), set()).add(image.id)
    return found


def _full_name(image: str) -> str:
    """Return a name as runtimes list it: upstream compares as it is, and does not find short ones."""
    try:
        tagged, repository = with_default_tag(image), repository_of(image)
    except ImageNameError:
        return image
    name, at, digest = tagged.partition("@")
    return f"{repository}@{digest}" if at else f"{repository}:{name.rpartition(':')[2]}"
