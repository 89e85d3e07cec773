"""What the world around the fake runtime does, and how slow its calls are."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from klet.testing.fake_runtime.images import Registry, nowhere
from klet.testing.fake_runtime.lives import ExecChooser, LifeChooser, lives_forever, succeeds

Latency: TypeAlias = Callable[[str, random.Random], timedelta]


def no_latency(_rpc: str, _rng: random.Random) -> timedelta:
    return timedelta()


def random_latency(longest: timedelta) -> Latency:
    """Return a latency up to that for each call, drawn from the runtime's seed."""
    return lambda _rpc, rng: longest * rng.random()


class Script(Struct, frozen=True):
    """What the world around the runtime does: containers, commands in them, the registry, and how slow calls are."""

    lives: LifeChooser = lives_forever
    execs: ExecChooser = succeeds
    registry: Registry = nowhere
    latency: Latency = no_latency
