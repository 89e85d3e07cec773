"""`klet image load`: gives containerd the images of an archive, which is checked as it passes by."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from io import BufferedReader
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from klet.aio.clock import Clock
from klet.cli.image_archive import BadArchive, ImageArchive, decompressed, read_archive, read_rest
from klet.cli.node_runtime import NodeRuntime
from klet.cli.progress import CommandProgress
from klet.cri.client import CriClient, connect
from klet.errors import KletError
from klet.model.foreign_text import LONGEST_WORD, as_terminal_text, read_output, shorten
from klet.model.pull_progress import describe_bytes
from klet.wire import cri_v1_pb2 as pb

CALL_DEADLINE: Final = timedelta(seconds=10)
VISIBLE_DEADLINE: Final = timedelta(seconds=30)
POLL: Final = timedelta(milliseconds=50)
SHOW_EVERY: Final = 0.2
"""Seconds between two updates of the display."""
STANDARD_INPUT: Final = "-"


class CannotLoad(KletError):
    """An archive that was not loaded; nothing of it is left but blobs, which containerd collects."""


class _PassedOn:
    """The bytes of an archive on their way to containerd, which are read here too.

    The last piece is held back until the whole is known to be good: without the end mark containerd makes no image.
    """

    def __init__(self, *, source: IO[bytes], sink: IO[bytes], progress: CommandProgress, clock: Clock) -> None:
        self._source = source
        self._sink = sink
        self._progress = progress
        self._clock = clock
        self._shown = clock.monotonic()
        self._held = b""
        self.passed = 0
        self.total: int | None = None

    def read(self, size: int, /) -> bytes:
        piece = self._source.read(size)
        self._sink.write(self._held)
        self._held = piece
        self.passed += len(piece)
        now = self._clock.monotonic()
        if now - self._shown >= SHOW_EVERY:
            self._shown = now
            of = f" of {describe_bytes(self.total)}" if self.total is not None else ""
            self._progress.waiting(f"Loading: {describe_bytes(self.passed)}{of}")
        return piece

    def finish(self) -> None:
        """Pass the last piece on."""
        self._sink.write(self._held)


class _Target(Struct, frozen=True, kw_only=True):
    """How to give archives to a containerd."""

    images: tuple[str, ...]
    """`ctr images` for it."""
    unpacking: tuple[str, ...]
    space: int | None
    """Bytes that are free on its disk; None if it does not say which disk that is."""


def load_archive(
    file: str, runtime: NodeRuntime, *, base_name: str, progress: CommandProgress, clock: Clock
) -> tuple[str, ...]:
    """Load an archive, or standard input, and return the names of its images. Raises KletError."""
    with progress.step(f"Load {_shown(file)}") as step:
        target = asyncio.run(_prepare(runtime))
        # Outside of an event loop, so that Ctrl-C ends it at once.
        archive = _pass_on(file, target, base_name, progress, clock)
        for name, full in archive.short_names:
            _rename(name, full, target)
        asyncio.run(_until_visible(runtime, archive, clock))
        step.note(f"{', '.join(archive.names)} ({describe_bytes(archive.size)})")
    return archive.names


def _shown(file: str) -> str:
    return file if file != STANDARD_INPUT else "standard input"


async def _prepare(runtime: NodeRuntime) -> _Target:
    async with _connect(runtime) as cri:
        ctr = await _find_ctr(cri, runtime)
        unpacking = await _unpacking(cri)
        images = (ctr, "--address", str(runtime.socket), "--namespace", "k8s.io", "images")
        return _Target(images=images, unpacking=unpacking, space=await _free_space(cri))


def _connect(runtime: NodeRuntime) -> AbstractAsyncContextManager[CriClient]:
    return connect(runtime_endpoint=runtime.endpoint, image_endpoint=runtime.image_endpoint, timeout=CALL_DEADLINE)


def _pass_on(file: str, target: _Target, base_name: str, progress: CommandProgress, clock: Clock) -> ImageArchive:
    """Read the archive, and give containerd every piece of it that was read."""
    command = (*target.images, "import", *target.unpacking, *(("--base-name", base_name) if base_name else ()), "-")
    with _opened(file) as source, tempfile.TemporaryFile() as output:
        importer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        assert importer.stdin is not None, "it was asked for"
        try:
            plain = decompressed(source)
            passed_on = _PassedOn(source=plain, sink=importer.stdin, progress=progress, clock=clock)
            passed_on.total = _size_of(source) if plain is source else None
            archive = read_archive(passed_on, base_name=base_name, space=target.space)
            read_rest(plain)
            passed_on.finish()
            importer.stdin.close()
            code = importer.wait()
        except BadArchive as error:
            raise CannotLoad(f"{_shown(file)}: {error}") from error
        except BrokenPipeError:
            code = importer.wait()
            archive = None
        finally:
            progress.waiting("")
            if importer.poll() is None:
                # Without the end of its input, it has made no image of what it got.
                importer.kill()
                importer.wait()
            with contextlib.suppress(BrokenPipeError):
                importer.stdin.close()
        if code or archive is None:
            output.seek(0)
            reason = as_terminal_text(read_output(output.read(1 << 14)).strip())
            raise CannotLoad(f"{_shown(file)}: containerd did not take it: {reason or f'ctr ended with {code}'}")
        return archive


def _rename(name: str, full: str, target: _Target) -> None:
    """Give an image its full name instead of the one in the archive, by which the CRI would not find it."""
    for command in (("tag", "--force", "--", name, full), ("remove", "--", name)):
        done = subprocess.run([*target.images, *command], capture_output=True, check=False)
        if done.returncode:
            reason = as_terminal_text(read_output(done.stderr).strip())
            shown = as_terminal_text(shorten(name, LONGEST_WORD))
            raise CannotLoad(
                f"the image {shown!r} cannot be named {full}: {reason or f'ctr ended with {done.returncode}'}"
            )


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BufferedReader]:
    if file == STANDARD_INPUT:
        if sys.stdin.isatty():
            raise CannotLoad("standard input is a terminal: pipe an archive into it, or name a file")
        with os.fdopen(os.dup(sys.stdin.fileno()), "rb") as stream:
            yield stream
        return
    path = Path(file)
    try:
        stream = path.open("rb")
    except OSError as error:
        raise CannotLoad(f"{file}: {error.strerror}") from error
    with stream:
        yield stream


def _size_of(source: IO[bytes]) -> int | None:
    try:
        return os.fstat(source.fileno()).st_size or None
    except (OSError, ValueError):
        return None


async def _find_ctr(cri: CriClient, runtime: NodeRuntime) -> str:
    name = (await cri.version(pb.VersionRequest())).runtime_name
    if name != "containerd":
        raise CannotLoad(
            f"the runtime at {runtime.endpoint} is {name}: archives can be loaded into containerd only; "
            "`klet image pull` works with every runtime"
        )
    ctr = shutil.which("ctr")
    if ctr is None:
        raise CannotLoad("ctr is not installed: it comes with containerd (Debian: apt-get install containerd)")
    return ctr


async def _unpacking(cri: CriClient) -> tuple[str, ...]:
    """Return how to unpack images for the CRI's snapshotter; if that is not known, their first container does it."""
    answer = await cri.status(pb.StatusRequest(verbose=True))
    snapshotter = find_snapshotter_in(answer.info.get("config", ""))
    return ("--snapshotter", snapshotter) if snapshotter else ("--no-unpack",)


class _ContainerdSection(Struct, frozen=True):
    snapshotter: str = ""


class _CriConfig(Struct, frozen=True):
    containerd: _ContainerdSection = _ContainerdSection()


def find_snapshotter_in(config: str) -> str:
    """Return the snapshotter that containerd's CRI plugin says it is configured with; empty if it does not say."""
    try:
        return msgspec.json.decode(config, type=_CriConfig).containerd.snapshotter
    except (msgspec.MsgspecError, RecursionError):
        return ""


async def _free_space(cri: CriClient) -> int | None:
    """Return how many bytes the disk of the images has; None if the runtime does not say which disk that is."""
    answer = await cri.image_fs_info(pb.ImageFsInfoRequest())
    for filesystem in answer.image_filesystems:
        with contextlib.suppress(OSError):
            found = os.statvfs(filesystem.fs_id.mountpoint)
            return found.f_bavail * found.f_frsize
    return None


async def _until_visible(runtime: NodeRuntime, archive: ImageArchive, clock: Clock) -> None:
    """Wait until the CRI shows the images: it learns of them by an event."""
    began = clock.monotonic()
    async with _connect(runtime) as cri:
        for name in archive.names:
            request = pb.ImageStatusRequest(image=pb.ImageSpec(image=name))
            while not (await cri.image_status(request)).image.id:
                if clock.monotonic() - began > VISIBLE_DEADLINE.total_seconds():
                    raise CannotLoad(f"containerd took {name}, and the CRI does not show it: is it for this platform?")
                await clock.sleep(POLL)
