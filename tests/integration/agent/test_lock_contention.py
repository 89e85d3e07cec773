"""`--lock-file` and `--exit-on-lock-contention`: one agent makes room for the next, and pods notice nothing."""

import asyncio
import signal
from contextlib import AsyncExitStack

import pytest
from asyncinotify import Inotify, Mask

pytestmark = [pytest.mark.root, pytest.mark.containerd]

DEADLINE = 60


async def ended(process) -> int:
    return await asyncio.wait_for(process.wait(), DEADLINE)


async def test_an_agent_makes_room_for_the_next_and_its_pods_run_on(node, manifest, tmp_path):
    flags = (f"--lock-file={tmp_path / 'lock'}", "--exit-on-lock-contention")
    node.write("one", manifest("one", main="exec sleep 1000"))
    async with node.run(*flags) as first:
        await first.recorded("one", "Started", "Ready")
        before = (await first.pod("one")).status.container_statuses[0].container_id
        # The second has everything in common with the first: root directory, socket, journal. It only waits.
        async with node.started(*flags) as process:
            assert await ended(first.process) == 0
            async with node.answering(process) as second:
                # Nothing changes, so only this record shows that the pod was adopted.
                await second.recorded("one", "Adopted")
                after = (await second.pod("one")).status.container_statuses[0]
                assert (after.container_id, after.restart_count) == (before, 0)
                assert process.returncode is None
    assert "The lock file is wanted by another process" in node.log.read_text()


@pytest.mark.parametrize("act", [lambda path: path.unlink(), lambda path: path.read_bytes()], ids=["deleted", "opened"])
async def test_an_agent_ends_when_its_lock_file_is(node, tmp_path, act):
    async with node.run(f"--lock-file={tmp_path / 'lock'}", "--exit-on-lock-contention") as agent:
        act(tmp_path / "lock")
        assert await ended(agent.process) == 0
    assert "Stopping; pods keep running" in agent.log


async def test_an_agent_that_may_stay_lets_the_next_wait(node, tmp_path):
    flags = (f"--lock-file={tmp_path / 'lock'}",)
    async with node.run(*flags) as first, AsyncExitStack() as stack:
        (tmp_path / "lock").read_bytes()
        with Inotify() as notifier:
            notifier.add_watch(tmp_path / "lock", Mask.OPEN)
            second = await stack.enter_async_context(node.started(*flags))
            await asyncio.wait_for(notifier.get(), DEADLINE)
            assert await first.text("/healthz/ping") == "ok"
            second.send_signal(signal.SIGTERM)
            assert await ended(second) == 0
        assert first.process.returncode is None
        assert await first.stop() == 0


async def test_at_verbosity_6_every_call_of_the_runtime_is_in_the_log(node, manifest):
    node.write("one", manifest("one", main="exec sleep 1000"))
    async with node.run("-v=6") as agent:
        await agent.recorded("one", "Started")
        await agent.text("/pods")
        log = agent.log
    for call in ("RunPodSandbox", "CreateContainer", "StartContainer"):
        assert f'"CRI response" method="/runtime.v1.RuntimeService/{call}" status="OK" milliseconds=' in log
    for line in ('"SyncLoop ADD" source="file"', '"Decision" decision="Started"', '"Event of the runtime" event="'):
        assert line in log
    assert '"HTTP" verb="GET" URI="/pods"' in log
