"""containerd dies and comes back under running pods: they run on, and the agent goes on with them."""

import asyncio

from klet.aio.clock import SystemClock
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, restart_containerd
from klet.wire import cri_v1_pb2 as pb

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


async def running(cri) -> dict[tuple[str, str], tuple[str, str]]:
    """Id and process of every running container."""
    found = {}
    for container in (await cri.list_containers(pb.ListContainersRequest())).containers:
        if container.state == pb.CONTAINER_RUNNING:
            request = pb.ContainerStatusRequest(container_id=container.id, verbose=True)
            pid = (await cri.container_status(request)).info["info"].split('"pid":')[1].split(",")[0]
            found[container.labels["io.kubernetes.pod.name"], container.metadata.name] = (container.id, pid)
    return found


async def kill_process(pid: str) -> None:
    process = await asyncio.create_subprocess_exec("kill", "-9", pid)
    assert await process.wait() == 0


async def test_pods_run_on_and_the_agent_goes_on(own_containerd, build_node, manifest):
    async with own_containerd("restart") as daemon:
        node = build_node(daemon)
        node.write("web", manifest("web", one=FOREVER, two=FOREVER))
        node.write("victim", manifest("victim", main=FOREVER))
        async with node.run() as agent, connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT) as cri:
            await agent.recorded("web", "Ready")
            await agent.recorded("victim", "Ready")
            before = await running(cri)
            status = (await agent.pod("web")).status

            daemon.process.kill()
            daemon.process.wait()
            await kill_process(before["victim-node", "main"][1])
            node.write("late", manifest("late", main=FOREVER))
            await agent.recorded("late", "PodAdded")
            async with restart_containerd(daemon, clock=SystemClock()) as again:
                # What died meanwhile is noticed, what came meanwhile is started.
                await agent.recorded("victim", "RestartContainer", "Started", "Ready")
                await agent.recorded("late", "Started", "Ready")
                # The event stream is there again: a new pod is ready long before the next relist.
                node.write("new", manifest("new", main=FOREVER))
                await agent.recorded("new", "PodAdded", "Ready")
                after = await running(again)
                assert {key: after[key] for key in before if key[0] == "web-node"} == {
                    key: before[key] for key in before if key[0] == "web-node"
                }
                assert (await agent.pod("web")).status == status
                victim = (await agent.pod("victim")).status.container_statuses[0]
                assert victim.restart_count == 1
                assert victim.container_id != f"containerd://{before['victim-node', 'main'][0]}"
                assert await agent.text("/healthz") == "ok"
                for name in ("web", "victim", "late", "new"):
                    node.remove(name)
                await agent.until(lambda pods: not pods, what="the end of all pods")
                assert "Traceback" not in agent.log
                assert await agent.stop() == 0
