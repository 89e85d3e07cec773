"""One pod through the raw CRI of a real containerd: what klet builds on, and the images it brings."""

import asyncio
import ipaddress
import json
import os
import re
import signal
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from klet.cri.errors import CriNotFound, ExecTimeout, Unimplemented
from klet.cri.events import ContainerdEvents, CriEvents, EventKind
from klet.host.containerd_config import PAUSE_IMAGE
from klet.host.images import BUSYBOX_IMAGE
from klet.testing.cri_configs import build_container_config, build_sandbox_config
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]

PATIENCE = 10
FOREVER = ("sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 1 & wait $!; done")


class Watch:
    """Runtime events as they come, awaited by kind and id."""

    def __init__(self):
        self.seen = []
        self._more = asyncio.Condition()

    async def follow(self, source):
        async with aclosing(source.subscribe()) as events:
            async for event in events:
                async with self._more:
                    self.seen.append(event)
                    self._more.notify_all()

    async def until(self, kind, container_id):
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(lambda: any(self.is_it(event, kind, container_id) for event in self.seen))
        return next(event for event in self.seen if self.is_it(event, kind, container_id))

    @staticmethod
    def is_it(event, kind, container_id):
        return (event.kind, event.container_id) == (kind, container_id)


@asynccontextmanager
async def watching(cri):
    watch = Watch()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.follow(ContainerdEvents(connection=cri.runtime)))
        yield watch
        task.cancel()


@pytest.fixture
async def events(cri):
    async with watching(cri) as watch:
        yield watch


async def run_sandbox(cri, containerd, directory, **options):
    config = build_sandbox_config(log_directory=directory, cgroup_parent=containerd.cgroup_parent, **options)
    answer = await cri.run_pod_sandbox(pb.RunPodSandboxRequest(config=config))
    return answer.pod_sandbox_id, config


async def run_container(cri, sandbox, sandbox_config, config):
    request = pb.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config)
    container = (await cri.create_container(request)).container_id
    await cri.start_container(pb.StartContainerRequest(container_id=container))
    return container


async def container_status(cri, container):
    return (await cri.container_status(pb.ContainerStatusRequest(container_id=container))).status


async def run(cri, container, *command, timeout=PATIENCE):
    return await cri.exec_sync(pb.ExecSyncRequest(container_id=container, cmd=command, timeout=timeout))


def catches(pid, number):
    """Whether the process is the pause program already, not the runtime that becomes it, and has its handlers."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search(r"SigCgt:\s*(\w+)", status)[1]
    return status.startswith("Name:\tpause\n") and int(caught, 16) >> (number - 1) & 1


async def test_the_images_are_there(cri):
    images = (await cri.list_images(pb.ListImagesRequest())).images
    assert {tag for image in images for tag in image.repo_tags} >= {PAUSE_IMAGE, BUSYBOX_IMAGE}


async def test_an_image_that_is_not_there_is_no_error(cri):
    answer = await cri.image_status(pb.ImageStatusRequest(image=pb.ImageSpec(image="klet.local/none:1")))
    assert not answer.HasField("image")


async def test_a_pod_from_start_to_removal(cri, containerd, events, tmp_path):
    sandbox, sandbox_config = await run_sandbox(cri, containerd, tmp_path, name="whole")
    await events.until(EventKind.STARTED, sandbox)
    status = (await cri.pod_sandbox_status(pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox))).status
    assert status.state == pb.SANDBOX_READY
    assert ipaddress.ip_address(status.network.ip) in containerd.subnet

    before = datetime.now(UTC)
    config = build_container_config(name="main", command=FOREVER)
    container = await run_container(cri, sandbox, sandbox_config, config)
    started = await events.until(EventKind.STARTED, container)
    assert before - timedelta(seconds=1) < started.at < datetime.now(UTC) + timedelta(seconds=1)
    assert (await container_status(cri, container)).state == pb.CONTAINER_RUNNING

    said = await run(cri, container, "sh", "-c", "hostname; echo no >&2; exit 7")
    assert (said.stdout, said.stderr, said.exit_code) == (b"whole\n", b"no\n", 7)

    stats = (await cri.container_stats(pb.ContainerStatsRequest(container_id=container))).stats
    assert stats.cpu.usage_core_nano_seconds.value > 0
    assert stats.memory.working_set_bytes.value > 0

    await cri.stop_container(pb.StopContainerRequest(container_id=container, timeout=PATIENCE))
    await events.until(EventKind.STOPPED, container)
    stopped = await container_status(cri, container)
    assert (stopped.state, stopped.exit_code, stopped.reason) == (pb.CONTAINER_EXITED, 3, "Error")
    assert re.fullmatch(r"\S+Z stdout F ready\n", (tmp_path / "main.log").read_text())

    await cri.remove_container(pb.RemoveContainerRequest(container_id=container))
    await cri.stop_pod_sandbox(pb.StopPodSandboxRequest(pod_sandbox_id=sandbox))
    await cri.remove_pod_sandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox))
    await events.until(EventKind.DELETED, sandbox)
    with pytest.raises(CriNotFound):
        await container_status(cri, container)
    assert [event.kind for event in events.seen if event.container_id == container] == [
        EventKind.CREATED,
        EventKind.STARTED,
        EventKind.STOPPED,
        EventKind.DELETED,
    ], "the exec made no event"


async def test_a_missing_container_is_not_found_in_the_words_of_the_runtime(cri):
    with pytest.raises(CriNotFound, match=r"^rpc error: code = NotFound desc = .*none") as caught:
        await container_status(cri, "none")
    assert caught.value.message.startswith("an error occurred")


async def test_a_command_that_takes_too_long(cri, containerd, tmp_path):
    sandbox, sandbox_config = await run_sandbox(cri, containerd, tmp_path, name="slow")
    container = await run_container(
        cri, sandbox, sandbox_config, build_container_config(name="main", command=("sleep", "60"))
    )
    with pytest.raises(ExecTimeout, match=r'^command timed out: "sleep 30" timed out after 1s$'):
        await run(cri, container, "sleep", "30", timeout=1)


async def test_calls_that_containerd_1_6_does_not_have_are_unimplemented(cri):
    if not (await cri.version(pb.VersionRequest())).runtime_version.startswith(("1.6.", "v1.6.")):
        pytest.skip("only with containerd 1.6: the machine has a newer one, which knows the calls")
    with pytest.raises(Unimplemented):
        await cri.runtime_config(pb.RuntimeConfigRequest())
    with pytest.raises(Unimplemented):
        await cri.list_metric_descriptors(pb.ListMetricDescriptorsRequest())
    with pytest.raises(Unimplemented):
        await cri.update_pod_sandbox_resources(pb.UpdatePodSandboxResourcesRequest())
    async with aclosing(CriEvents(runtime=cri).subscribe()) as stream:
        with pytest.raises(Unimplemented):
            await anext(stream)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: f"{number.name} ends a sandbox")
async def test_the_pause_program_leaves_at_once(cri, containerd, events, tmp_path, number):
    sandbox, _ = await run_sandbox(cri, containerd, tmp_path, name="leaving")
    request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox, verbose=True)
    info = json.loads((await cri.pod_sandbox_status(request)).info["info"])
    async with asyncio.timeout(PATIENCE):
        while not catches(info["pid"], number):  # noqa: ASYNC110 (a process does not say when it has set its handlers)
            await asyncio.sleep(0.001)
    sent = datetime.now(UTC)
    os.kill(info["pid"], number)
    stopped = await events.until(EventKind.STOPPED, sandbox)
    assert stopped.at - sent < timedelta(seconds=1)


async def test_the_pause_program_reaps_the_orphans_of_a_shared_process_namespace(cri, containerd, tmp_path):
    sandbox, sandbox_config = await run_sandbox(cri, containerd, tmp_path, name="reaper", shared_processes=True)
    config = build_container_config(name="main", command=("sleep", "60"), shared_processes=True)
    container = await run_container(cri, sandbox, sandbox_config, config)
    script = "sh -c 'sleep 0.05 & echo $!' > /tmp/orphan; sleep 0.3; ps -o pid,ppid,stat,args; cat /tmp/orphan"
    *processes, orphan = (await run(cri, container, "sh", "-c", script)).stdout.decode().splitlines()
    assert any(re.match(r"\s*1\s+0\s+S\s+/pause", line) for line in processes), processes
    assert not any(line.split()[0] == orphan or "Z" in line.split()[2] for line in processes[1:]), processes
