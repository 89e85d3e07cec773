"""What the processes of a story's containers do, and the commands inside them. Pure, from a generator."""

import random
from datetime import timedelta

from klet.cri.errors import Code
from klet.simulation.commands import CommandResults
from klet.testing.fake_runtime import ContainerLife, OnTerm, RpcFailure
from klet.testing.fake_runtime.lives import ExecResult

LONGEST_HOOK = timedelta(seconds=15)
FOR_EVER = timedelta(minutes=10)
"""Longer than any grace period: a caller that waits for it has to give up."""
STARTUP_FAILURES = (0, 0, 1, 2, 9)
"""Nine is more than any startup probe forgives."""


def draw_regular_lives(rng: random.Random, policy: str) -> list[ContainerLife]:
    crashes = [_crash(rng) for _ in range(rng.choices((0, 1, 2, 3), (6, 2, 1, 1))[0])]
    on_term = _on_term(rng)
    forever = ContainerLife(on_term=on_term)
    if policy == "Always" or rng.random() < 0.4:
        last = forever
    elif policy == "OnFailure":
        last = ContainerLife(lasts=_seconds(rng, 20), on_term=on_term)
    else:
        last = ContainerLife(lasts=_seconds(rng, 30), exit_code=rng.choice((0, 0, 1, 2)), on_term=on_term)
    return [last] if policy == "Never" else [*crashes, last]


def draw_sidecar_lives(rng: random.Random) -> list[ContainerLife]:
    crashes = [_crash(rng) for _ in range(rng.choices((0, 1), (3, 1))[0])]
    return [*crashes, ContainerLife(on_term=_on_term(rng))]


def draw_init_lives(rng: random.Random) -> list[ContainerLife]:
    crashes = [_crash(rng) for _ in range(rng.choices((0, 1), (4, 1))[0])]
    return [*crashes, ContainerLife(lasts=_seconds(rng, 3))]


def draw_debugger_lives(rng: random.Random) -> list[ContainerLife]:
    lasts = None if rng.random() < 0.5 else _seconds(rng, 20)
    return [ContainerLife(lasts=lasts, exit_code=rng.choice((0, 1)), on_term=_on_term(rng))]


def draw_command_results(rng: random.Random) -> CommandResults:
    """Draw results that may be bad at first; they are good in the end, or nothing would ever settle."""
    bad_starts = rng.choice((0, 0, 1, 2))
    return CommandResults(
        startup_failures=(*(rng.choice(STARTUP_FAILURES) for _ in range(bad_starts)), rng.choice((0, 1, 2))),
        post_start=(*(_hook(rng, LONGEST_HOOK) for _ in range(bad_starts)), ExecResult(takes=_seconds(rng, 1))),
        pre_stop=(_hook(rng, FOR_EVER),),
    )


def _hook(rng: random.Random, longest: timedelta) -> ExecResult:
    """Draw a hook that succeeds, fails or hangs."""
    kind = rng.random()
    if kind < 0.4:
        return ExecResult(takes=_seconds(rng, 1))
    if kind < 0.7:
        return ExecResult(exit_code=1, takes=_seconds(rng, 1))
    return ExecResult(exit_code=rng.choice((0, 1)), takes=longest)


def _crash(rng: random.Random) -> ContainerLife:
    kind = rng.random()
    if kind < 0.2:
        return ContainerLife(start_failure=RpcFailure(Code.UNKNOWN, "failed to create containerd task: no such file"))
    if kind < 0.3:
        return ContainerLife(lasts=_seconds(rng, 5), exit_code=137, oom_killed=True)
    return ContainerLife(lasts=_seconds(rng, 5), exit_code=rng.choice((1, 2, 139)), on_term=_on_term(rng))


def _on_term(rng: random.Random) -> OnTerm | None:
    kind = rng.random()
    if kind < 0.2:
        return None
    return OnTerm(exit_code=rng.choice((0, 143)), after=timedelta() if kind < 0.6 else _seconds(rng, 4))


def _seconds(rng: random.Random, most: float) -> timedelta:
    """Draw up to so many seconds, sometimes none at all."""
    return timedelta() if rng.random() < 0.1 else timedelta(milliseconds=round(rng.uniform(0, most) * 1000))
