"""Turns to start pods: only so many at once, first come first served. Nothing but starts ever waits here.

Many sandboxes at once slow the runtime down for all of them. A turn is for what the runtime does: a pod that waits for
something else, an image or a hook, gives it back meanwhile, and gets the next one before those that came after it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.turns import Turn, Turns
from klet.model.pods import PodUID
from klet.model.stopping_pods import StoppingPods

LONGEST_STEP = timedelta(seconds=5)
"""A sandbox or container that takes longer counts no more. On a busy machine one takes a second or two; one that hangs
may take minutes, and would keep its turn from others that could start."""

FEWEST = 2
"""Turns to begin with, where there are as many: half of so few would be too few."""


class StartTurns:
    """Gives out turns, half of them to begin with; a step of a start that hangs loses its own."""

    def __init__(self, *, at_once: int, stopping_pods: StoppingPods, clock: Clock) -> None:
        first = min(at_once, max(FEWEST, at_once // 2))
        self._turns = Turns(at_once=at_once, longest=LONGEST_STEP, clock=clock, first=first)
        self._stopping_pods = stopping_pods

    @property
    def is_busy(self) -> bool:
        """Whether a pod starts, or waits for its turn to."""
        return self._turns.is_busy

    async def until_idle(self) -> None:
        """Return as soon as no pod starts or waits for its turn to."""
        await self._turns.until_idle()

    @contextmanager
    def queue(self, uid: PodUID) -> Iterator["PodTurn"]:
        """The place of one pod in the queue; its turn is given back at the end of the block."""
        with self._turns.queue() as turn:
            yield PodTurn(turn=turn, stopping_pods=self._stopping_pods, uid=uid)


class PodTurn:
    """One pod's place in the queue."""

    def __init__(self, *, turn: Turn, stopping_pods: StoppingPods, uid: PodUID) -> None:
        self._turn = turn
        self._stopping_pods = stopping_pods
        self._uid = uid

    async def take(self) -> None:
        """Return when the next step may begin; raises PodStopping if the pod is to stop, without waiting for a turn."""
        if not self._turn.renew():
            await self._stopping_pods.run(self._uid, self._turn.take())

    def give_back(self) -> None:
        """What comes next is no work of the runtime, or there is nothing more to do."""
        self._turn.give_back()
