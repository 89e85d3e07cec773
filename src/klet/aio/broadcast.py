"""One sender, many listeners: each subscription has its own queue, bounded by dropping the oldest item.

Use it for hints ("look at this key again"), where a listener that fell behind is told so by `lagged`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")

DEFAULT_LIMIT = 4096


class Subscription(Generic[T]):
    """A listener's end. Iterate it, or drain it; leaving the `with` block unsubscribes."""

    def __init__(self, *, source: "Broadcast[T]", limit: int) -> None:
        self._source = source
        self._items: deque[T] = deque(maxlen=limit)
        self._limit = limit
        self._arrived = asyncio.Event()
        self._watcher: asyncio.Future[None] | None = None
        self.lagged = False
        """True once an item was dropped because this listener was too slow. The listener resets it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._source.forget(self)

    def push(self, item: T) -> None:
        if len(self._items) == self._limit:
            self.lagged = True
        self._items.append(item)
        self._arrived.set()
        if self._watcher is not None and not self._watcher.done():
            self._watcher.set_result(None)

    def drain(self) -> list[T]:
        """Everything that has arrived, without waiting."""
        items = list(self._items)
        self._items.clear()
        self._arrived.clear()
        return items

    async def get(self) -> T:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()

    def watch(self, watcher: "asyncio.Future[None] | None") -> bool:
        """Have a future end when the next item comes; say whether one is there already."""
        self._watcher = watcher
        return bool(self._items)

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            yield await self.get()


async def until_any(*subscriptions: Subscription[Any]) -> None:
    """Return when something has come to one of them; it stays there."""
    watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        if not any(subscription.watch(watcher) for subscription in subscriptions):
            await watcher
    finally:
        for subscription in subscriptions:
            subscription.watch(None)


class Broadcast(Generic[T]):
    """The sender's end. Sending never waits and never fails."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription[T]] = []

    def send(self, item: T) -> None:
        for subscription in self._subscriptions:
            subscription.push(item)

    def subscribe(self, *, limit: int = DEFAULT_LIMIT) -> Subscription[T]:
        subscription = Subscription(source=self, limit=limit)
        self._subscriptions.append(subscription)
        return subscription

    def forget(self, subscription: Subscription[T]) -> None:
        """Stop sending to a subscription. Forgetting it twice is harmless."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
