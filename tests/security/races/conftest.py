"""Races between code of ours, or a naive variant of it, and an attacker who swaps names.

`KLET_RACE_SECONDS` sets how long the real code has to survive, `KLET_RACE_SEED` what the attacker chooses.
"""

import os

import pytest

from klet.testing.races.arena import open_arena
from klet.testing.races.confined import why_no_mounts
from klet.testing.races.race import race

SECONDS = float(os.environ.get("KLET_RACE_SECONDS", "2"))
SEED = int(os.environ.get("KLET_RACE_SEED", "1"))
BROKEN_WITHIN = 30.0
"""Seconds: an attacker who needs longer for a naive victim proves nothing about another one."""
ENOUGH_SWAPS = 100


@pytest.fixture
def arena():
    with open_arena() as arena:
        yield arena


@pytest.fixture(scope="session")
def no_mounts():
    """Why there can be no races for mounts; None if there can."""
    return why_no_mounts()


@pytest.fixture
def survives(arena, no_mounts):
    """Asserts that a victim does no harm however long it is attacked, and does some work in spite of that."""

    def check(victim, *swaps, mounts=False):
        if mounts and no_mounts:
            pytest.skip(f"no mount namespace: run tests/security/races alone, or where one is allowed; {no_mounts}")
        outcome = race(arena, victim, swaps, seconds=SECONDS, seed=SEED, mounts=mounts)
        print(outcome)  # noqa: T201 - shown with a failure
        assert outcome.harm == "", outcome
        assert outcome.done > 0, outcome
        assert outcome.swaps > ENOUGH_SWAPS, outcome
        return outcome

    return check


@pytest.fixture
def breaks(arena, no_mounts):
    """Asserts that the attacker is fast enough for a naive victim; returns what happened to the sentinels."""

    def check(victim, *swaps, mounts=False):
        if mounts and no_mounts:
            pytest.skip(f"no mount namespace: run tests/security/races alone, or where one is allowed; {no_mounts}")
        outcome = race(arena, victim, swaps, seconds=BROKEN_WITHIN, seed=SEED, mounts=mounts)
        print(outcome)  # noqa: T201 - shown with a failure
        assert outcome.harm, outcome
        assert outcome.seconds < BROKEN_WITHIN, outcome
        return outcome.harm

    return check
