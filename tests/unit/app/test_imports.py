import subprocess
import sys

import pytest

PROGRAM = "import sys, klet.app.run; print(' '.join(name for name in sys.modules if '.' not in name))"


@pytest.fixture(scope="module")
def agent_modules() -> set[str]:
    answer = subprocess.run([sys.executable, "-P", "-c", PROGRAM], check=True, capture_output=True, text=True)
    return set(answer.stdout.split())


@pytest.mark.parametrize(
    "library", ["typer", "rich", "click", "cryptography", "dbus_fast", "hypothesis", "opentelemetry", "pytest"]
)
def test_the_agent_does_not_import(agent_modules, library):
    assert library not in agent_modules


def test_a_node_of_a_cluster_without_offline_keeping_does_not_import_cryptography():
    program = "import sys, klet.app.run, klet.app.cluster.join; print('cryptography' in sys.modules)"
    answer = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["False"]
