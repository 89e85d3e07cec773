"""A shim that hangs holds up its own pod and nobody else."""

from klet.testing.shims import shim_of, stopped

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


async def test_a_hung_shim_blocks_only_its_own_pod(node, manifest, cri, containerd):
    node.write("stuck", manifest("stuck", main=FOREVER))
    node.write("other", manifest("other", main=FOREVER))
    async with node.run("--klet-max-parallel-starts=1") as agent:
        await agent.recorded("stuck", "Ready")
        await agent.recorded("other", "Ready")
        uid = (await agent.pod("stuck")).metadata.uid
        with stopped(await shim_of(cri, uid, containerd)):
            node.remove("stuck")
            await agent.recorded("stuck", "PodRemoved", "Killing")
            # Others start, end by themselves, are stopped and are reported.
            node.write("new", manifest("new", main=FOREVER))
            node.write("job", manifest("job", main="echo done", spec={"restartPolicy": "Never"}))
            node.remove("other")
            await agent.recorded("new", "Started", "Ready")
            await agent.recorded("job", "Started", "Finished")
            await agent.recorded("other", "Stopped", "Finished", "Removed")
            assert (await agent.pod("job")).status.phase == "Succeeded"
            [record] = await agent.recorded("stuck", "RuntimeNotAnswering")
            assert "StopContainer" in record["message"]
            assert (await agent.pod("new")).status.phase == "Running"
            assert await agent.text("/healthz") == "ok"
        await agent.recorded("stuck", "Stopped", "Finished", "Removed")
        assert "Traceback" not in agent.log
