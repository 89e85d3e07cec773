"""One sender, many receivers: each subscription has its own queue, bounded by dropping the oldest item.

Use it for hints ("look at this key again"). A subscription that was too slow returns a `Lagged` once: its consumer
then looks at everything again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")

DEFAULT_LIMIT = 4096


class Lagged:
    """Returned in place of an item: items were dropped before those that follow, so look at everything."""


class Subscription(Generic[T]):
    """The receiving end. Iterate it, or drain it; leaving the `with` block unsubscribes."""

    def __init__(self, *, source: "Broadcast[T]", limit: int) -> None:
        self._source = source
        self._items: deque[T] = deque(maxlen=limit)
        self._limit = limit
        self._arrived = asyncio.Event()
        self._watcher: asyncio.Future[None] | None = None
        self._has_lagged = False
        """Whether an item was dropped since the consumer was last notified of that."""

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
            self._has_lagged = True
        self._items.append(item)
        self._arrived.set()
        if self._watcher is not None and not self._watcher.done():
            self._watcher.set_result(None)

    def drain(self) -> list[T]:
        """Return everything that has arrived, without waiting and without a Lagged.

        For consumers that look at everything afterwards.
        """
        items = list(self._items)
        self._items.clear()
        self._arrived.clear()
        self._has_lagged = False
        return items

    async def get(self) -> T | Lagged:
        """Return the next item, or a Lagged first if items before it were dropped."""
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        if self._has_lagged:
            # The flag is cleared before the consumer looks: what is dropped while it looks makes another Lagged.
            self._has_lagged = False
            return Lagged()
        return self._items.popleft()

    async def next_item(self) -> T:
        """Return the next item, without a Lagged. For consumers to which dropped items do not matter."""
        while isinstance(item := await self.get(), Lagged):
            continue
        return item

    async def items(self) -> AsyncIterator[T]:
        """Iterate over the items alone, as `next_item` returns them."""
        while True:
            yield await self.next_item()

    def watch(self, watcher: "asyncio.Future[None] | None") -> bool:
        """Complete a future when the next item comes; return whether one is there already."""
        self._watcher = watcher
        return bool(self._items)

    async def __aiter__(self) -> AsyncIterator[T | Lagged]:
        while True:
            yield await self.get()


async def until_any(*subscriptions: Subscription[Any]) -> None:
    """Return when one of them has an item; the item stays there."""
    watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    try:
        if not any(subscription.watch(watcher) for subscription in subscriptions):
            await watcher
    finally:
        for subscription in subscriptions:
            subscription.watch(None)


class Broadcast(Generic[T]):
    """The sending end. Sending never waits and never fails."""

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
