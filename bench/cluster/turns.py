"""klet and the upstream kubelet take turns, never both at once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bench.cluster.node import Cluster, NodeUnderTest
from bench.cluster.programs import BOTH, Program
from bench.floor import Floor
from klet.cri.client import CriClient

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turns(Generic[T]):
    """What was measured, round by round."""

    klet: list[T] = field(default_factory=list)
    upstream: list[T] = field(default_factory=list)
    floor: list[T] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ground:
    """What all parts are measured on."""

    cluster: Cluster
    floor: Floor
    client: CriClient
    rounds: int
    at_once: int
    """Pods at a time of the floor."""
    ready_after: Turns[float]
    """How long every node took to be ready, whatever it was for."""

    async def take_turns(
        self,
        measure: Callable[[NodeUnderTest, int], Awaitable[T]],
        floor: Callable[[], Awaitable[T]] | None = None,
        *,
        rounds: int | None = None,
        programs: tuple[Program, Program] = BOTH,
        before: Callable[[], None] = lambda: None,
    ) -> Turns[T]:
        """Rounds of each side in turn, so that a machine that gets slower slows all; each on a node of its own."""
        turns: Turns[T] = Turns()
        for number in range(rounds or self.rounds):
            if floor is not None:
                turns.floor.append(await floor())
            klet, upstream = programs
            for program, found, ready_after in (
                (klet, turns.klet, self.ready_after.klet),
                (upstream, turns.upstream, self.ready_after.upstream),
            ):
                before()
                async with self.cluster.node(program, self.client) as node:
                    if programs == BOTH:
                        ready_after.append(node.ready_after)
                    found.append(await measure(node, number))
        return turns
