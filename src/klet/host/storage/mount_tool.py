"""Mounts made by mount(8): it runs the helpers of network filesystems, and says why a disk is not mounted.

What needs neither is mounted, and everything is unmounted, by system call: `klet.host.mounts`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from klet.aio.threads import Threads
from klet.host.errors import HostError, ProcessError
from klet.host.mountinfo import MountEntry
from klet.host.mounts import list_mounts
from klet.host.storage.tools import NETWORK, HostTools, exit_text, said

MASKED: Final = "<masked>"
_MOUNT: Final = "mount"


class MountToolFailed(HostError):
    """mount(8) failed; the message has its output."""


def build_mount_arguments(source: str, target: str, *, fs_type: str, options: Iterable[str]) -> tuple[str, ...]:
    """Return the arguments of mount(8), in upstream's order."""
    joined = ",".join(options)
    return (
        *(("-t", fs_type) if fs_type else ()),
        *(("-o", joined) if joined else ()),
        *((source,) if source else ()),
        target,
    )


class MountTool:
    """Runs mount(8)."""

    def __init__(self, *, tools: HostTools, threads: Threads, table: Path = Path("/proc/self/mountinfo")) -> None:
        self._tools = tools
        self._threads = threads
        self._table = table

    async def list(self) -> tuple[MountEntry, ...]:
        """Return the mount table, which the kernel has whether servers answer or not."""
        return await self._threads.run(list_mounts, self._table)

    async def mount(
        self, source: str, target: Path, *, fs_type: str, options: Sequence[str], secret_options: Sequence[str] = ()
    ) -> None:
        """Mount a filesystem; raises MountToolFailed. The secret options do not appear in it."""
        if source.startswith("-"):
            raise MountToolFailed(f"cannot mount {source!r}: a source does not begin with '-'")
        arguments = build_mount_arguments(source, str(target), fs_type=fs_type, options=(*options, *secret_options))
        shown = build_mount_arguments(
            source, str(target), fs_type=fs_type, options=(*options, *([MASKED] if secret_options else []))
        )
        try:
            done = await self._tools.run(_MOUNT, *arguments, timeout=NETWORK)
        except ProcessError as error:
            raise MountToolFailed(_mount_failure(str(error), shown, "")) from error
        if done.returncode != 0:
            raise MountToolFailed(_mount_failure(exit_text(done), shown, said(done)))


def _mount_failure(error: str, arguments: Sequence[str], output: str) -> str:
    return (
        f"mount failed: {error}\nMounting command: {_MOUNT}\nMounting arguments: {' '.join(arguments)}\n"
        f"Output: {output}"
    )
