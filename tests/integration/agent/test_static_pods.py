"""Static pods on real containerd: started, shown, changed, removed, and adopted by the next agent."""

import asyncio
import json
import os
import socket

import pytest
from aiohttp import web

from klet.testing.leftovers import find_cgroups
from klet.wire import cri_v1_pb2 as pb

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


async def container_ids(cri) -> dict[str, str]:
    answer = await cri.list_containers(pb.ListContainersRequest())
    return {c.metadata.name: c.id for c in answer.containers if c.state == pb.CONTAINER_RUNNING}


async def test_a_pod_runs_from_its_manifest_to_its_removal(node, manifest, cri):
    async with node.run() as agent:
        node.write("web", manifest("web", main=f"echo hello; {FOREVER}"))
        await agent.recorded("web", "PodAdded", "SandboxCreated", "Started", "Ready")
        pod = await agent.pod("web")
        assert pod.status.phase == "Running"
        assert pod.status.pod_ip
        assert pod.status.container_statuses[0].container_id.startswith("containerd://")
        assert await agent.first_line("web", "main") == "hello\n"
        log_directory = node.logs / f"default_web-node_{pod.metadata.uid}"
        assert (log_directory / "main" / "0.log").exists()

        node.remove("web")
        await agent.recorded("web", "PodRemoved", "Killing", "Stopped", "Finished", "Removed")
        assert await agent.pods() == {}
        assert not (await cri.list_pod_sandbox(pb.ListPodSandboxRequest())).items
        assert not log_directory.exists()
        assert list((node.root / "pods").iterdir()) == []
        assert not find_cgroups(f"pod{pod.metadata.uid}")
        assert await agent.stop() == 0


async def test_a_changed_manifest_replaces_the_pod(node, manifest, cri):
    async with node.run() as agent:
        node.write("web", manifest("web", main=FOREVER))
        await agent.recorded("web", "Ready")
        old = (await agent.pod("web")).metadata.uid
        node.write("web", manifest("web", main=f"echo changed; {FOREVER}"))
        await agent.recorded("web", "PodRemoved", "Stopped", uid=old)
        [added] = [
            record
            for record in await agent.recorded("web", "PodAdded", "PodAdded", "Ready")
            if record["decision"] == "PodAdded" and record["subject"]["uid"] != old
        ]
        assert added["subject"]["uid"] == (await agent.pod("web")).metadata.uid
        assert await agent.first_line("web", "main") == "changed\n"


async def test_init_containers_come_first_and_a_job_succeeds(node, manifest, cri):
    async with node.run() as agent:
        node.write("job", manifest("job", init={"setup": "echo one"}, main="echo two", spec={"restartPolicy": "Never"}))
        await agent.recorded("job", "StartInitContainer", "Started", "Started", "Terminate", "Stopped", "Finished")
        pod = await agent.pod("job")
        assert pod.status.phase == "Succeeded"
        assert [s.state.terminated.exit_code for s in pod.status.init_container_statuses] == [0]
        assert await agent.text("/containerLogs/default/job-node/setup") == "one\n"
        assert await agent.text("/containerLogs/default/job-node/main") == "two\n"


async def test_a_failing_container_backs_off(node, manifest, cri):
    async with node.run() as agent:
        node.write("crash", manifest("crash", main="echo boom; exit 3"))
        records = await agent.recorded("crash", "Started", "RestartContainer", "Started", "BackOff")
        assert records[-1]["measurements"]["backoffSeconds"] == 10.0
        status = (await agent.pod("crash")).status.container_statuses[0]
        assert status.restart_count == 1
        assert status.state.waiting.reason == "CrashLoopBackOff"
        assert status.last_state.terminated.exit_code == 3
        assert await agent.text("/containerLogs/default/crash-node/main?previous=true") == "boom\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("{not yaml", "bad.yaml", id="not YAML"),
        pytest.param('{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}}', "Service", id="not a pod"),
        pytest.param(
            '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": "many"}}',
            "spec.containers",
            id="a field of the wrong type",
        ),
    ],
)
async def test_a_bad_manifest_is_reported_and_harms_no_other_pod(node, manifest, cri, text, says):
    async with node.run() as agent:
        node.write("web", manifest("web", main=FOREVER))
        await agent.recorded("web", "Ready")
        before = await container_ids(cri)
        node.write("bad", text)
        node.write("other", manifest("other", main=FOREVER))
        await agent.recorded("other", "Ready")
        assert says in agent.log
        assert before["main"] in {c.id for c in (await cri.list_containers(pb.ListContainersRequest())).containers}
        assert (await agent.pod("web")).status.phase == "Running"


async def test_a_killed_agent_comes_back_to_the_same_containers(node, manifest, cri):
    node.write("web", manifest("web", one=FOREVER, two=FOREVER))
    async with node.run() as agent:
        await agent.recorded("web", "Ready")
        before = await agent.pod("web")
        ids = await container_ids(cri)
        await node.remembers({"web": before.status})
        await agent.kill()
    async with node.run() as agent:
        await agent.recorded("web", "PodAdded", "Adopted")
        after = await agent.pod("web")
        assert await container_ids(cri) == ids
        assert after.metadata.uid == before.metadata.uid
        assert after.status == before.status


async def test_an_orphan_is_removed_by_the_next_agent(node, manifest, cri):
    node.write("web", manifest("web", main=FOREVER))
    async with node.run() as agent:
        await agent.recorded("web", "Ready")
        await agent.kill()
    node.remove("web")
    async with node.run() as agent:
        await agent.recorded("web", "Terminate", "Finished", "Removed")
        assert not (await cri.list_pod_sandbox(pb.ListPodSandboxRequest())).items


async def test_pods_come_from_a_url(node, manifest, cri, unused_tcp_port):
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=json.dumps(manifest("remote", main=FOREVER)))

    application = web.Application()
    application.router.add_get("/pod", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    try:
        async with node.run(staticPodURL=f"http://127.0.0.1:{unused_tcp_port}/pod") as agent:
            await agent.recorded("remote", "PodAdded", "Ready")
            assert (await agent.pod("remote")).metadata.annotations["kubernetes.io/config.source"] == "http"
    finally:
        await runner.cleanup()


async def test_a_bad_configuration_ends_it_before_anything_starts(node):
    node.config.write_text(json.dumps(node.settings | {"maxPods": "many"}))
    code, output = await node.run_to_end("--config", str(node.config))
    assert code == 1
    assert "maxPods" in output
    assert not node.root.exists()


async def test_a_port_of_the_host_that_somebody_listens_on_is_reported(node, manifest):
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        pod = manifest("web", main=FOREVER)
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": number}]
        node.write("web", pod)
        async with node.run() as agent:
            _, held, _ = await agent.recorded("web", "CreateSandbox", "HostPortHeld", "Ready")
    assert f"host port {number}/TCP is held by " in held["message"]
    assert f"(pid {os.getpid()})" in held["measurements"]["heldBy"]


async def test_the_runtime_gets_the_pod_network_of_the_configuration(node):
    expected = (
        '"CRI response" method="/runtime.v1.RuntimeService/UpdateRuntimeConfig" status="OK"',
        '"Pod CIDRs in use" cidrs="10.97.0.0/24"',
    )
    async with node.run("-v=6", "--pod-cidr=10.97.0.0/24") as agent, asyncio.timeout(60):
        while not all(line in agent.log for line in expected):  # noqa: ASYNC110 - a log that grows has no event
            await asyncio.sleep(0.05)
