"""Static pods from a directory of manifests, or from one file (upstream's file source).

The whole directory is listed at once and then each period; in between, inotify reports which file changed. A listing
is the truth: a manifest that has become bad loses its pod there. A single changed file that is bad keeps its pod until
then, so that an editor caught in the middle does not stop it.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.aio.backoff import Backoff
from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.aio.threads import Threads
from klet.api.pod import Pod
from klet.host.errors import HostError
from klet.host.inotify import ChangeKind, DirectoryChange, watch_directory
from klet.model.causes import CauseRecorder, FindingSubject
from klet.model.pods import FILE_SOURCE, subject_of
from klet.model.roles import PodSink
from klet.sources.complaints import Complaints
from klet.sources.errors import SourceError
from klet.sources.manifests import ManifestContent, ManifestReader, is_link

logger = logging.getLogger(__name__)

DECIDER: Final = "sources.file"
FIRST_RETRY: Final = timedelta(seconds=1)
LONGEST_RETRY: Final = timedelta(seconds=20)

_THE_PATH: Final = ""
"""The path itself, among the names of the files in it."""


class FileSource:
    """Follows a manifest directory or file."""

    def __init__(
        self,
        *,
        path: Path,
        every: timedelta,
        reader: ManifestReader,
        sink: PodSink,
        recorder: CauseRecorder,
        threads: Threads,
        clock: Clock,
    ) -> None:
        self._path = path
        self._every = every
        self._reader = reader
        self._sink = sink
        self._threads = threads
        self._clock = clock
        self._board = ManifestBoard()
        self._complaints = Complaints(decider=DECIDER, recorder=recorder)
        self._touched: set[str] = set()
        self._is_stale = False
        self._woken = asyncio.Event()
        self._sent: tuple[Pod, ...] | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name="file-source-watch")
            group.create_task(self._follow(), name="file-source-follow")

    async def _follow(self) -> None:
        while True:
            self._is_stale = False
            self._touched.clear()
            await self._list()
            due = self._clock.now() + self._every
            while not self._is_stale and self._clock.now() < due:
                await first_of(self._woken.wait(), self._clock.sleep_until(due))
                self._woken.clear()
                if not self._is_stale:
                    await self._read_touched()

    async def _list(self) -> None:
        """Read all manifests."""
        try:
            listing = await self._threads.run(self._reader.list, self._path)
        except SourceError as error:
            # Nothing is known of the pods, so no change is sent.
            self._complaints.about(_THE_PATH, str(error), subject=FindingSubject(), consequence="pods stay as they are")
            return
        self._complaints.settle(_THE_PATH)
        for name, reading in listing.readings.items():
            consequence = "its pod does not run" if listing.is_settled else "its pod stays as it is"
            self._judge(name, reading, consequence=consequence)
        if listing.is_settled:
            self._complaints.settle_others(listing.readings)
            self._board.replace(listing.readings)
            self._publish()

    async def _read_touched(self) -> None:
        """Read the files that changed."""
        names, self._touched = sorted(self._touched), set()
        for name in names:
            reading = await self._threads.run(self._reader.read, self._file(name))
            if reading is None:
                self._board.remove(name)
                self._complaints.settle(name)
            else:
                self._judge(name, reading, consequence="its pod, if it has one, runs until the next listing")
                if reading.pod is not None:
                    self._board.put(name, reading.pod)
        if names:
            self._publish()

    def _publish(self) -> None:
        pods = self._board.pods()
        if pods != self._sent:
            self._sent = pods
            self._sink.set_pods(FILE_SOURCE, pods)

    def _judge(self, name: str, reading: ManifestContent, *, consequence: str) -> None:
        if reading.error is None:
            self._complaints.settle(name)
            return
        pod = self._board.get(name)
        subject = FindingSubject() if pod is None else subject_of(pod)
        self._complaints.about(name, reading.error, subject=subject, consequence=consequence, digest=reading.digest)

    def _file(self, name: str) -> Path:
        return self._path / name if self._path.is_dir() else self._path

    async def _watch(self) -> None:
        """Note which files change. Without a watch only the periodic listings remain."""
        backoff = Backoff[str](first=FIRST_RETRY, longest=LONGEST_RETRY)
        while True:
            directory = self._path.parent if self._path.is_file() else self._path
            try:
                async with aclosing(watch_directory(directory)) as changes:
                    async for change in changes:
                        backoff.reset("")
                        self._note(change, directory)
            except HostError as error:
                logger.warning("Manifests not watched", extra={"path": str(self._path), "error": str(error)})
            await self._clock.sleep(backoff.next("", now=self._clock.now()))

    def _note(self, change: DirectoryChange, directory: Path) -> None:
        if change.kind is ChangeKind.RESCAN:
            self._is_stale = True
        elif change.name.startswith(".") or (directory != self._path and change.name != self._path.name):
            return
        elif change.kind is ChangeKind.CREATED and not is_link(directory / change.name):
            # It is still empty; writing and closing it is a change of its own.
            return
        else:
            self._touched.add(change.name)
        self._woken.set()


class ManifestBoard:
    """The pod of each file."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}

    def get(self, name: str) -> Pod | None:
        return self._pods.get(name)

    def put(self, name: str, pod: Pod) -> None:
        self._pods[name] = pod

    def remove(self, name: str) -> None:
        self._pods.pop(name, None)

    def replace(self, readings: Mapping[str, ManifestContent]) -> None:
        self._pods = {name: reading.pod for name, reading in readings.items() if reading.pod is not None}

    def pods(self) -> tuple[Pod, ...]:
        """Return one pod for each namespace and name: of two files with the same, the last by name wins."""
        chosen: dict[tuple[str, str], Pod] = {}
        for name in sorted(self._pods):
            pod = self._pods[name]
            chosen[pod.metadata.namespace, pod.metadata.name] = pod
        return tuple(chosen.values())
