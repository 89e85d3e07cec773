"""Stories of a simulated node: none of them may break an invariant, and each can be told again exactly."""

import hashlib
import logging
import os
import subprocess
import sys

import pytest

from klet.app.simulation.story import run_seed

# As many as take well under a minute on a busy machine; scripts/simulate tells any number.
SEEDS = range(32)

TELL = """
import hashlib, logging
from klet.app.simulation.story import run_seed
logging.disable(logging.CRITICAL)
print(hashlib.sha256("\\n".join(run_seed({seed}, verbose=True).story).encode()).hexdigest())
"""


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Everything that goes wrong is meant to."""
    caplog.set_level(logging.CRITICAL, logger="klet")


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed {seed}")
def test_story(seed):
    outcome = run_seed(seed)
    if outcome.violations:
        pytest.fail("\n".join((*outcome.story, *outcome.violations)), pytrace=False)
    assert outcome.lives


@pytest.mark.parametrize("seed", [3, 40])
def test_a_seed_tells_the_same_story_in_every_process(seed):
    mine = hashlib.sha256("\n".join(run_seed(seed, verbose=True).story).encode()).hexdigest()
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", TELL.format(seed=seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout.strip() == mine
