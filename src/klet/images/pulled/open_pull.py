"""How pulls are recorded, as the puller sees it; and a node that records none, without the gate for it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from klet.images.pulled.verification import Check
from klet.images.sources import LoginSource


class OpenPull(Protocol):
    """A pull whose intent is on disk. Without a word on how it ended, the intent stays."""

    async def succeeded(self, ref: str, source: LoginSource | None) -> None:
        """Record the image, and the credentials with which the registry gave it."""
        ...

    async def failed(self) -> None:
        """Drop the intent: the runtime said that it has pulled nothing."""
        ...


class PullRecorder(Protocol):
    """Records pulls, and checks pods that use an image without one."""

    async def prepare(self) -> None:
        """Settle what a previous run of the agent left; only the first call does anything."""
        ...

    def pulling(self, image: str, *, before: str) -> AbstractAsyncContextManager[OpenPull]:
        """Have an intent on disk while an image is pulled; raises FileError if it cannot be written.

        `before` is the image that was there under the name before the pull, if any.
        """
        ...

    async def check(
        self, image: str, ref: str, find_sources: Callable[[], Awaitable[Sequence[LoginSource]]]
    ) -> Check | None:
        """Return whether a pod may use an image that is there; None if nobody checks that.

        `find_sources` is asked if the pod's credentials decide, and may raise KletError.
        """
        ...


class NoPullRecords:
    """Records nothing and checks nobody."""

    async def prepare(self) -> None:
        return

    @asynccontextmanager
    async def pulling(self, image: str, *, before: str) -> AsyncIterator[OpenPull]:
        del image, before
        yield UnrecordedPull()

    async def check(
        self, image: str, ref: str, find_sources: Callable[[], Awaitable[Sequence[LoginSource]]]
    ) -> Check | None:
        del image, ref, find_sources
        return None


class UnrecordedPull:
    """A pull of which nothing is kept."""

    async def succeeded(self, ref: str, source: LoginSource | None) -> None:
        del ref, source

    async def failed(self) -> None:
        return
