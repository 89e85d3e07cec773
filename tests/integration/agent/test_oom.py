"""The kernel kills processes of containers at their limits, on real containerd: what becomes of it."""

import os

import pytest

from klet.host.kmsg import KMSG

# Its first process is the shell, which survives and goes on; the child writes into memory until it is killed.
SURVIVES = "while true; do head -c 200m /dev/zero | tail | wc -c; echo survived; sleep 600; done"
LIMITS = {"resources": {"limits": {"memory": "24Mi"}}}


@pytest.fixture(autouse=True)
def _readable():
    if not os.access(KMSG, os.R_OK):
        pytest.skip("/dev/kmsg cannot be read: the container that the tests run in forbids it")


async def test_a_child_that_is_killed_is_an_event_on_the_pod_though_the_container_goes_on(node, manifest):
    pod = manifest("web", main=SURVIVES)
    pod["spec"]["containers"][0] |= LIMITS
    # Of version 2 all processes of a container die together unless this is set.
    async with node.run(singleProcessOOMKill=True) as agent:
        node.write("web", pod)
        [found] = await agent.recorded("web", "OOMKilling")
        assert found["subject"]["container"] == "main"
        # The pod has the same limit, and the pause process in it: which of the two is reached first is not certain.
        assert 'of container "main", ' in found["message"]
        assert found["message"].endswith(" reached its memory limit of 24Mi")
        assert "killed process" in found["message"]
        assert "(tail)" in found["message"]
        assert found["measurements"]["limit"] == 24 << 20
        assert found["measurements"]["pid"] > 1
        assert found["measurements"]["kills"] == 1
        assert "survived" in await agent.said("web", "main", until="survived")
        status = (await agent.pod("web")).status
        assert status.container_statuses[0].restart_count == 0
        assert status.container_statuses[0].state.running is not None


async def test_a_container_that_dies_of_it_is_an_event_too_and_keeps_its_reason(node, manifest):
    pod = manifest("web", main="exec tail /dev/zero", spec={"restartPolicy": "Never"})
    pod["spec"]["containers"][0] |= LIMITS
    async with node.run() as agent:
        node.write("web", pod)
        [found] = await agent.recorded("web", "OOMKilling")
        assert "(tail)" in found["message"]
        assert "24Mi" in found["message"]
        await agent.until(lambda pods: pods["web"].status.phase == "Failed", what="the end")
        assert (await agent.pod("web")).status.container_statuses[0].state.terminated.reason == "OOMKilled"
