"""Limits how many pods start at once, first come first served. Only starts wait here: kills and reads never do.

The runtime slows down for all pods when it makes many sandboxes at once. A turn covers work of the runtime only: a pod
that waits for an image or a hook gives its turn back, and gets the next free one before pods that came after it.
Upstream has no such limit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.turns import Turn, Turns
from klet.model.pods import PodUID
from klet.model.stopping_pods import StoppingPods

LONGEST_STEP = timedelta(seconds=5)
"""A step that takes longer loses its turn. On a busy machine a sandbox or container takes a second or two; one that
hangs may take minutes, and would block pods that could start."""

FEWEST = 2
"""The least number of turns to begin with, if `at_once` allows it."""


class StartTurns:
    """Hands out turns to start pods; a step that hangs loses its turn."""

    def __init__(self, *, at_once: int, stopping_pods: StoppingPods, clock: Clock) -> None:
        # Not all turns at first: the first pods of a full node start are not slowed down by those behind them. The
        # number grows to `at_once` as starts come through (see Turns).
        first = min(at_once, max(FEWEST, at_once // 2))
        self._turns = Turns(at_once=at_once, longest=LONGEST_STEP, clock=clock, first=first)
        self._stopping_pods = stopping_pods

    @contextmanager
    def queue(self, uid: PodUID) -> Iterator["PodTurn"]:
        """Queue one pod; its turn is given back at the end of the block."""
        with self._turns.queue() as turn:
            yield PodTurn(turn=turn, stopping_pods=self._stopping_pods, uid=uid)


class PodTurn:
    """The turn of one pod, taken and given back several times during its start."""

    def __init__(self, *, turn: Turn, stopping_pods: StoppingPods, uid: PodUID) -> None:
        self._turn = turn
        self._stopping_pods = stopping_pods
        self._uid = uid

    async def take(self) -> None:
        """Return when the next step may begin; raises PodStopping if the pod is to stop meanwhile."""
        # A turn that is still held is renewed in one synchronous stretch: each step gets the whole LONGEST_STEP, and a
        # pod between two of its containers does not go to the end of the queue.
        if not self._turn.renew():
            # Waiting leaves nothing half done in the runtime, so a pod that must stop need not wait for its turn.
            await self._stopping_pods.run(self._uid, self._turn.take())

    def give_back(self) -> None:
        """Let the next pod start: what this one does now is no work of the runtime."""
        self._turn.give_back()
