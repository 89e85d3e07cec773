"""Nodes on the containerd of this machine and on a later one, with runtime classes."""

import json

import pytest

from klet.aio.clock import SystemClock
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, remove_pods


@pytest.fixture
async def newer_cri(newer_containerd):
    async with connect(runtime_endpoint=newer_containerd.endpoint, timeout=REQUEST_TIMEOUT) as client:
        yield client
        await remove_pods(client, clock=SystemClock())


@pytest.fixture
def newer_node(build_node, newer_containerd, newer_cri):
    return build_node(newer_containerd)


@pytest.fixture
def klet_config(tmp_path):
    """Writes a KletConfiguration and returns the flag that names it."""

    def write(*classes: dict) -> str:
        path = tmp_path / "klet.yaml"
        head = {"apiVersion": "klet.dev/v1alpha1", "kind": "KletConfiguration"}
        path.write_text(json.dumps(head | {"runtimeClasses": classes}))
        return f"--klet-config={path}"

    return write


@pytest.fixture
def nested(tmp_path):
    """A directory of the host with another file system mounted in it: `outer/inner`."""
    outer = tmp_path / "outer"
    (outer / "inner").mkdir(parents=True)
    return outer
