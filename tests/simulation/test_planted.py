"""The simulation finds bugs: each one in planted.py within 500 seeds."""

import importlib.util
import logging
from pathlib import Path

import pytest

from klet.app.simulation.story import run_seed

SEEDS = range(500)


def _planted():
    """Modules beside a test cannot be imported by name."""
    spec = importlib.util.spec_from_file_location("planted", Path(__file__).with_name("planted.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BUGS


@pytest.mark.parametrize("bug", _planted(), ids=lambda bug: bug.__name__.replace("_", " "))
def test_a_planted_bug_is_found(bug, caplog):
    caplog.set_level(logging.CRITICAL, logger="klet")
    assert any(run_seed(seed, alter=bug).violations for seed in SEEDS)
