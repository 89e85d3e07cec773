"""Stories of a simulated node: none of them may break an invariant, and each can be repeated exactly."""

import hashlib
import logging
import os
import subprocess
import sys
from contextlib import closing

import pytest

from klet.simulation.many import processors, run_seeds
from klet.simulation.story import run_seed

SEEDS = range(2000)
FEWEST_CONTAINERS = 10
"""Containers in a story, on average. In one or the other none comes to be."""
MOST = 3
"""Failures that are reported; more would only hide the first."""

PRINT_HASHES = """
import hashlib, logging
from klet.simulation.story import run_seed
logging.disable(logging.CRITICAL)
for seed in {seeds}:
    print(hashlib.sha256("\\n".join(run_seed(seed, verbose=True).story).encode()).hexdigest())
"""


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Everything that goes wrong is meant to."""
    caplog.set_level(logging.CRITICAL, logger="klet")


def test_stories():
    failures = []
    containers = 0
    with closing(run_seeds(SEEDS, jobs=max(2, processors()))) as outcomes:
        for outcome in outcomes:
            containers += outcome.containers
            if outcome.violations:
                again = f"again: scripts/simulate --seeds 1 --start {outcome.seed}"
                failures.append("\n".join((f"seed {outcome.seed}", *outcome.violations, again)))
            if len(failures) == MOST:
                break
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)
    assert containers > FEWEST_CONTAINERS * len(SEEDS)


def test_a_seed_gives_the_same_story_in_every_process():
    seeds = range(40, 52)
    mine = [hashlib.sha256("\n".join(run_seed(seed, verbose=True).story).encode()).hexdigest() for seed in seeds]
    for hash_seed in ("1", "2"):
        repeated = subprocess.run(
            [sys.executable, "-c", PRINT_HASHES.format(seeds=seeds)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert repeated.stdout.split() == mine
