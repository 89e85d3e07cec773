"""A shim that hangs holds up its own pod and nobody else."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from klet.wire import cri_v1_pb2 as pb

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


async def shim_of(cri, uid: str, containerd) -> int:
    """The process of the shim that keeps a pod."""
    wanted = pb.PodSandboxFilter(label_selector={"io.kubernetes.pod.uid": uid})
    [sandbox] = (await cri.list_pod_sandbox(pb.ListPodSandboxRequest(filter=wanted))).items
    return find_shim(sandbox.id, str(containerd.settings.socket))


def find_shim(sandbox: str, socket: str) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has just ended
        is_shim = arguments[0].rpartition("/")[2].startswith("containerd-shim")
        if is_shim and {sandbox, socket} <= set(arguments):
            return int(process.name)
    pytest.fail(f"no shim keeps sandbox {sandbox}")


@contextmanager
def stopped(pid: int):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_hung_shim_blocks_only_its_own_pod(node, manifest, cri, containerd):
    node.write("stuck", manifest("stuck", main=FOREVER))
    node.write("other", manifest("other", main=FOREVER))
    async with node.run("--klet-max-parallel-starts=1") as agent:
        await agent.heard("stuck", "Ready")
        await agent.heard("other", "Ready")
        uid = (await agent.pod("stuck")).metadata.uid
        with stopped(await shim_of(cri, uid, containerd)):
            node.remove("stuck")
            await agent.heard("stuck", "PodRemoved", "Killing")
            # Others start, end by themselves, are stopped and are reported.
            node.write("new", manifest("new", main=FOREVER))
            node.write("job", manifest("job", main="echo done", spec={"restartPolicy": "Never"}))
            node.remove("other")
            await agent.heard("new", "Started", "Ready")
            await agent.heard("job", "Started", "Finished")
            await agent.heard("other", "Stopped", "Finished", "Removed")
            assert (await agent.pod("job")).status.phase == "Succeeded"
            [told] = await agent.heard("stuck", "RuntimeNotAnswering")
            assert "StopContainer" in told["message"]
            assert (await agent.pod("new")).status.phase == "Running"
            assert await agent.text("/healthz") == "ok"
        await agent.heard("stuck", "Stopped", "Finished", "Removed")
        assert "Traceback" not in agent.log
