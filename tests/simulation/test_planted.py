"""The simulation finds bugs: each one in planted.py within 500 seeds."""

import importlib.util
import sys
from contextlib import closing
from pathlib import Path

import pytest

from klet.simulation.many import processors, run_seeds

SEEDS = range(500)


def _planted():
    """Modules beside a test cannot be imported by name; forked processes find it among those that are loaded."""
    spec = importlib.util.spec_from_file_location("planted", Path(__file__).with_name("planted.py"))
    module = sys.modules["planted"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BUGS


@pytest.mark.parametrize("bug", _planted(), ids=lambda bug: bug.__name__.replace("_", " "))
def test_a_planted_bug_is_found(bug):
    with closing(run_seeds(SEEDS, jobs=max(2, processors()), alter=bug)) as outcomes:
        found = next((outcome for outcome in outcomes if outcome.violations), None)
    assert found is not None
