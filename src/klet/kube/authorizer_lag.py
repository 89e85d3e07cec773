"""Requests that the node authorizer may refuse for a moment.

It learns from a watch of its own which pods are this node's, and so which objects the node may read: a fast node may
ask too early. A pod waits for these objects, so a refused request is repeated soon.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

from klet.aio.clock import Clock
from klet.kube.errors import Forbidden

T = TypeVar("T")

AUTHORIZER_LAG: Final = tuple(timedelta(milliseconds=each) for each in (25, 50, 100, 200, 400))


async def once_allowed(request: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Return the answer to a request that is repeated while it is forbidden, for less than a second."""
    for pause in AUTHORIZER_LAG:
        try:
            return await request()
        except Forbidden:
            await clock.sleep(pause)
    return await request()
