"""The whole Debian machine of scripts/vm: one for all tests, each of which leaves it as it found it."""

import sys

import pytest

from klet.testing.vm.machine import whole_machine
from klet.testing.vm.node import KLET, UPSTREAM, SystemdNode
from klet.testing.vm.tests import why_skipped


def pytest_addoption(parser):
    parser.addoption("--kubelet", choices=(KLET, UPSTREAM), default=KLET, help="the agent of the machine's node")


@pytest.fixture(scope="session")
def machine():
    if reason := why_skipped():
        pytest.skip(reason)
    with whole_machine(lambda text: sys.stderr.write(f"{text}\n")) as found:
        found.output("systemctl is-system-running --wait || systemctl --failed")
        yield found


@pytest.fixture(scope="session")
def agent(request) -> str:
    return request.config.getoption("--kubelet")


@pytest.fixture(scope="session")
def installed(machine, agent) -> SystemdNode:
    node = SystemdNode(machine=machine, agent=agent)
    node.install()
    return node


@pytest.fixture
def node(installed):
    """A node whose agent may run already, with no pods; afterwards they are gone."""
    yield installed
    installed.remove_pods()


@pytest.fixture
def only_klet(agent):
    if agent != KLET:
        pytest.skip("about what klet has and upstream's kubelet has not: run it without --kubelet")
