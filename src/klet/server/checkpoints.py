"""Checkpoints of running containers: archives that the runtime writes below the root directory.

An archive holds the memory of the container's processes, and so every secret in it: it is root's alone.
"""

import logging
import os
from pathlib import Path
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.pod import Pod
from klet.errors import KletError
from klet.host.beneath import make_directories, open_directory, open_regular_in
from klet.server.runtime_pods import RuntimePods
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

CHECKPOINTS: Final = "checkpoints"
"""The directory below the root directory."""
DIRECTORY_MODE: Final = 0o700
ARCHIVE_MODE: Final = 0o600


class NothingToCheckpoint(KletError):
    """A container of which no checkpoint can be made."""


class CheckpointCall(Protocol):
    """The part of the runtime that makes checkpoints."""

    async def checkpoint_container(
        self, request: cri.CheckpointContainerRequest
    ) -> cri.CheckpointContainerResponse: ...


class ContainerCheckpoints:
    """Has the runtime write checkpoints."""

    def __init__(
        self, *, root: Path, runtime: CheckpointCall, running: RuntimePods, threads: Threads, clock: Clock
    ) -> None:
        self._root = root
        self._runtime = runtime
        self._running = running
        self._threads = threads
        self._clock = clock

    async def make(self, pod: Pod, container: str, *, uid: str, timeout: int) -> Path:
        """Return the archive of a running container. `uid` is the pod's in the runtime; a timeout of 0 is the default.

        Raises KletError.
        """
        id_ = await self._running.running_container(uid, container)
        if id_ is None:
            raise NothingToCheckpoint(f"container {container} not found")
        name = self._name(pod, container)
        await self._threads.run(make_directories, self._root, CHECKPOINTS, mode=DIRECTORY_MODE)
        path = self._root / CHECKPOINTS / name
        request = cri.CheckpointContainerRequest(container_id=id_, location=str(path), timeout=timeout)
        await self._runtime.checkpoint_container(request)
        await self._threads.run(_protect, self._root, name)
        logger.info("Container checkpointed", extra={"pod": pod.metadata.name, "container": container, "file": name})
        return path

    def _name(self, pod: Pod, container: str) -> str:
        now = self._clock.now().astimezone().isoformat(timespec="seconds").replace("+00:00", "Z")
        return f"checkpoint-{pod.metadata.name}_{pod.metadata.namespace}-{container}-{now}.tar"


def _protect(root: Path, name: str) -> None:
    """Set the mode of an archive; runtimes differ in the one they give it."""
    with open_directory(root, CHECKPOINTS) as directory:
        archive = open_regular_in(directory, name, root / CHECKPOINTS / name)
    try:
        os.fchmod(archive, ARCHIVE_MODE)
    finally:
        os.close(archive)
