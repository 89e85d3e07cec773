"""Blocking work on a bounded number of threads, so that a slow disk does not fill the process with threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A pool of at most `limit` threads. Close it when the last user is gone."""

    def __init__(self, *, limit: int, name: str = "klet") -> None:
        self._executor = ThreadPoolExecutor(max_workers=limit, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function. If the caller is cancelled, the thread keeps running until the function returns."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args, **kwargs))

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)
