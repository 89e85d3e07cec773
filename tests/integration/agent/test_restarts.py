"""Restarts behind gates, on real containerd: of all containers of a pod at once, and sooner in crash loops."""

import pytest

from klet.wire import cri_v1_pb2 as pb

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
ASKS_ONCE = f"[ -e /data/asked ] && {{ echo again; {FOREVER}; }}; touch /data/asked; sleep 3; exit 42"
RESTART_ALL = {"RestartAllContainersOnContainerExits": True, "NodeDeclaredFeatures": True}
REDUCED = {"ReduceDefaultCrashLoopBackOffDecay": True}
RULES = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
NAMES = ("helper", "main", "proxy", "setup")


def asking(manifest) -> dict:
    """A pod that is never restarted but by the rule of one container; all of its containers share a volume."""
    pod = manifest(
        "web",
        init={"setup": "echo ran >> /data/setup", "proxy": FOREVER},
        main=ASKS_ONCE,
        helper=FOREVER,
        spec={"restartPolicy": "Never", "volumes": [{"name": "data", "emptyDir": {}}]},
    )
    spec = pod["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec["initContainers"][1]["restartPolicy"] = "Always"
    spec["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": RULES}
    return pod


def restarts(pod) -> dict[str, int]:
    every = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {status.name: status.restart_count for status in every}


async def sandboxes(cri) -> list[str]:
    return [each.id for each in (await cri.list_pod_sandbox(pb.ListPodSandboxRequest())).items]


async def containers(cri) -> dict[str, str]:
    return {each.id: each.metadata.name for each in (await cri.list_containers(pb.ListContainersRequest())).containers}


async def test_one_exit_restarts_all_containers_in_their_sandbox(node, manifest, cri):
    async with node.run(featureGates=RESTART_ALL) as agent:
        node.write("web", asking(manifest))
        await agent.recorded("web", "Ready")
        before, made, place = await agent.pod("web"), await containers(cri), await sandboxes(cri)
        [_, decided, _] = await agent.recorded("web", "Ready", "RestartAllContainers", "Ready")
        assert decided["measurements"] == {"container": "main", "exitCode": 42}
        after = await agent.pod("web")
        assert await sandboxes(cri) == place
        assert after.status.pod_ip == before.status.pod_ip
        now = await containers(cri)
        assert made.keys().isdisjoint(now)
        assert sorted(now.values()) == sorted(NAMES)
        assert restarts(after) == dict.fromkeys(NAMES, 1)
        # The volume is the same, and the init container has run again.
        assert await agent.first_line("web", "main") == "again\n"
        [data] = node.root.glob(f"pods/{after.metadata.uid}/volumes/kubernetes.io~empty-dir/data")
        assert (data / "setup").read_text() == "ran\nran\n"
        [told] = [each for each in after.status.conditions if each.type == "AllContainersRestarting"]
        assert told.status == "False"


async def test_an_agent_that_is_killed_meanwhile_leaves_it_to_the_next(node, manifest, cri):
    async with node.run(featureGates=RESTART_ALL) as agent:
        node.write("web", asking(manifest))
        await agent.recorded("web", "Ready", "RestartAllContainers", "Killing")
        await agent.kill()
    async with node.run(featureGates=RESTART_ALL) as agent:

        def is_up(pods) -> bool:
            return "web" in pods and restarts(pods["web"]) == dict.fromkeys(NAMES, 1) and _is_ready(pods["web"])

        await agent.until(is_up, what="a pod that has restarted once")
        assert len(await sandboxes(cri)) == 1
        assert sorted((await containers(cri)).values()) == sorted(NAMES)


@pytest.mark.deadline(90)
async def test_crash_loops_begin_with_a_second(node, manifest):
    async with node.run(featureGates=REDUCED) as agent:
        node.write("web", manifest("web", main="exit 1"))
        delays = []
        async for record in agent.records(name="web-node"):
            if record["decision"] == "BackOff" and (delay := record["measurements"]["backoffSeconds"]) not in delays:
                delays.append(delay)
                if len(delays) == 3:
                    break
        assert delays == [1, 2, 4]


def _is_ready(pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
