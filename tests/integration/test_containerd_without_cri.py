"""A containerd that comes up without its CRI plugin: `klet up` starts it once more, and then says why at once."""

import asyncio
import shutil
import tempfile
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.cli.node.daemons import containerd_service, run_services, stop_daemon
from klet.cli.node.node import NodeError, find_node
from klet.cli.node.runtime_ready import RUNTIME_DEADLINE, restart_supervised, until_runtime_ready
from klet.cli.node.supervisor import OWN_NAME
from klet.host.cni import build_cni_list
from klet.host.containerd_config import ContainerdSettings, build_containerd_config
from klet.testing.containerd import why_impossible

CLOCK = SystemClock()

# The supervisor outlives the command that starts it, which here is the test run.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


@pytest.fixture
async def node():
    """A node with nothing but directories, whose daemons are ended."""
    if reason := why_impossible():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="klet-") as directory:
        node = find_node(Path(directory))
        for path in (node.paths.configuration, node.paths.cni_configuration, node.paths.logs, node.paths.pids):
            path.mkdir(parents=True)
        network = build_cni_list(name="none", bridge="klet-none", subnets=[], data_dir=directory)
        (node.paths.cni_configuration / "10.conflist").write_text(network)
        yield node
        await stop_daemon(node, OWN_NAME, clock=CLOCK)


@pytest.fixture
def settings(node):
    return ContainerdSettings(
        root=node.paths.containerd_root,
        state=node.paths.containerd_state,
        socket=node.paths.containerd_socket,
        cni_conf_dir=node.paths.cni_configuration,
        cni_bin_dir=Path("/usr/lib/cni"),
        snapshotter="nosuch",
        restrict_oom_score_adj=True,
        runtime_root=node.paths.runc_root,
    )


async def start(node, settings):
    node.paths.containerd_configuration.write_text(build_containerd_config(settings))
    program = shutil.which("containerd")
    await run_services(node, [containerd_service(node, program=program, revision="1")], clock=CLOCK)


async def test_the_error_of_the_plugin_is_reported_at_once(node, settings):
    await start(node, settings)
    with pytest.raises(NodeError) as caught:
        async with asyncio.timeout(RUNTIME_DEADLINE.total_seconds() / 2):
            await until_runtime_ready(node, clock=CLOCK, restart=partial(restart_supervised, node, clock=CLOCK))
    why = 'failed to create CRI service: failed to find snapshotter "nosuch"'
    assert str(caught.value).startswith(f"containerd runs without its CRI plugin: {why} (log: ")


async def test_what_was_put_right_meanwhile_is_well_after_the_restart(node, settings):
    await start(node, settings)
    log = node.paths.logs / "containerd.log"
    async with asyncio.timeout(30):
        while not log.exists() or "containerd successfully booted" not in log.read_text():
            await CLOCK.sleep(timedelta(milliseconds=20))  # another process
    well = build_containerd_config(replace(settings, snapshotter="native"))
    node.paths.containerd_configuration.write_text(well)
    async with asyncio.timeout(RUNTIME_DEADLINE.total_seconds() / 2):
        restart = partial(restart_supervised, node, clock=CLOCK)
        assert (await until_runtime_ready(node, clock=CLOCK, restart=restart)).startswith("containerd ")
