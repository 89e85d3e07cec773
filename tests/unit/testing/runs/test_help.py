"""`scripts/test --help` is about scripts/test, and prepares nothing."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "scripts" / "test"


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(option):
    done = subprocess.run([SCRIPT, option], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.startswith("Usage: scripts/test ")
    assert "130 after Ctrl-C" in done.stdout
    assert "--maxfail" not in done.stdout, "these are pytest's options"
    assert done.stderr == ""
