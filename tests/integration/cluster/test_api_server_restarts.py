"""The API server is killed and started again while pods come, end and go: nothing is lost, and nothing restarts."""

import asyncio
import random
from contextlib import aclosing
from datetime import timedelta

import pytest

from klet.aio.clock import Clock
from klet.api.config import ConfigMap
from klet.api.pod import Pod
from klet.cri.client import connect
from klet.kube.errors import Expired, KubeError
from klet.kube.watch import Watcher, WatchScope
from klet.testing.containerd import REQUEST_TIMEOUT
from klet.wire import cri_v1_pb2 as pb

KILLS = 5
STEADY = 8
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


def is_running(pod: Pod) -> bool:
    return pod.status.phase == "Running" and all(each.ready for each in pod.status.container_statuses)


async def insist(ask) -> None:
    """Ask until the API server has done it; it may have done it before it was killed."""
    while True:
        try:
            await ask()
            return
        except KubeError as error:
            if getattr(error, "code", 0) in (404, 409):
                return


async def one_after_another(api, node, manifest, reported: dict[str, str], until: asyncio.Event) -> None:
    """Pods that end by themselves, and pods that are deleted while they run."""
    number = 0
    while not until.is_set():
        number += 1
        job, web = f"job-{number}", f"web-{number}"
        once = manifest(job, main="sleep 0.2", spec={"restartPolicy": "Never"})
        await insist(lambda once=once: api.create(once, node=node.name))
        await insist(lambda web=web: api.create(manifest(web), node=node.name))
        ended = await api.until_pod(job, lambda pod: pod.status.phase == "Succeeded", what="Succeeded")
        reported[job] = ended.status.container_statuses[0].state.terminated.container_id
        await api.until_pod(web, is_running, what="running")
        await insist(lambda web=web: api.delete(web))
        await api.until_gone(web)


async def test_nothing_is_lost_and_nothing_restarts(ready, api, node, manifest, containerd, control_plane):
    names = [f"steady-{number}" for number in range(STEADY)]
    for name in names:
        await api.create(manifest(name), node=node.name)
    before = {name: container_of(await api.until_pod(name, is_running, what="running")) for name in names}
    reported: dict[str, str] = {}
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(one_after_another(api, node, manifest, reported, over))
        for number in range(KILLS):
            await api.until_pods(lambda _, number=number: len(reported) > number, what="a job has ended")
            await control_plane.api_server.kill()
            control_plane.api_server.start()
            await control_plane.until_ready()
        over.set()
    assert len(reported) >= KILLS
    for name in names:
        pod = api.pods.get(name, "default")
        assert container_of(pod) == before[name]
        assert pod.status.container_statuses[0].restart_count == 0
    async with connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as cri:
        containers = (await cri.list_containers(pb.ListContainersRequest())).containers
    assert {each.annotations["io.kubernetes.container.restartCount"] for each in containers} == {"0"}
    for job, container in reported.items():
        pod = api.pods.get(job, "default")
        assert pod.status.phase == "Succeeded"
        assert pod.status.container_statuses[0].state.terminated.container_id == container


async def test_while_it_is_away_one_voice_says_so(ready, agent, control_plane):
    begin = len(agent.log)
    await control_plane.api_server.kill()
    await has_said(agent, "The API server does not answer; trying again", begin, control_plane.clock)
    control_plane.api_server.start()
    await control_plane.until_ready()
    await has_said(agent, "The API server answers again", begin, control_plane.clock)
    unreachable = [line for line in agent.log[begin:].splitlines() if "Cannot connect to host" in line]
    assert all("The API server " in line for line in unreachable)


async def has_said(agent, message: str, begin: int, clock: Clock) -> None:
    async with asyncio.timeout(60):
        while message not in agent.log[begin:]:
            await clock.sleep(timedelta(milliseconds=50))


async def test_a_watch_of_an_old_version_is_expired(api, control_plane):
    await control_plane.api_server.kill()
    control_plane.api_server.start()  # what was before its start is not in its memory
    await control_plane.until_ready()
    async with control_plane.transport() as transport:
        watcher = Watcher(transport=transport, randomness=random.Random(1))
        with pytest.raises(Expired):
            async with aclosing(watcher.watch(ConfigMap, WatchScope(), resource_version="1")) as events:
                await anext(events)


def container_of(pod: Pod) -> str:
    return pod.status.container_statuses[0].container_id
