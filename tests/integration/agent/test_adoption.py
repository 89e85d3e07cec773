"""`kill -9` of the agent and its next life: what it reports first is what was reported last."""

import json
from datetime import UTC, datetime

from klet.api.pod import Pod
from klet.wire import cri_v1_pb2 as pb

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
DEADLINE = 30
FLIPS = {"PhaseChanged", "Ready", "NotReady"}


def probed(manifest, name: str, check: str) -> dict:
    """A pod with a readiness probe each second."""
    pod = manifest(name, main=FOREVER)
    probe = {"exec": {"command": ["sh", "-c", check]}, "periodSeconds": 1}
    pod["spec"]["containers"][0] |= {"readinessProbe": probe, "livenessProbe": probe | {"failureThreshold": 1000}}
    return pod


async def records(agent, **query: str) -> list[dict]:
    async with agent.session.get("http://agent/klet/v1/journal", params=query) as answer:
        return [json.loads(line) for line in (await answer.text()).splitlines()]


async def starts_seen(cri) -> dict[str, int]:
    """Restart counts by container id, of the newest instances: older ones may be removed at any time."""
    listed = await cri.list_containers(pb.ListContainersRequest())
    newest: dict[tuple[str, str], tuple[str, int]] = {}
    for container in sorted(listed.containers, key=lambda found: found.created_at):
        place = (container.labels["io.kubernetes.pod.uid"], container.metadata.name)
        newest[place] = (container.id, int(container.annotations["io.kubernetes.container.restartCount"]))
    return dict(newest.values())


async def test_the_first_status_of_each_pod_equals_the_last(node, manifest, cri):
    async with node.run() as agent:
        node.write("web", manifest("web", one=FOREVER, two=FOREVER))
        node.write("ready", probed(manifest, "ready", "true"))
        node.write("unready", probed(manifest, "unready", "false"))
        node.write("job", manifest("job", main="echo done", spec={"restartPolicy": "Never"}))
        await agent.recorded("web", "Ready")
        await agent.recorded("ready", "Ready")
        await agent.recorded("unready", "Started")
        await agent.recorded("job", "Finished")
        # Last, so that its back-off of ten seconds is not over before the next life of the agent.
        node.write("crash", manifest("crash", main="exit 3"))
        await agent.recorded("crash", "BackOff")
        last = {name: pod.status for name, pod in (await agent.pods()).items()}
        containers = await starts_seen(cri)
        await node.remembers(last)
        await agent.kill()
    assert last["job"].phase == "Succeeded"
    assert last["job"].pod_ips
    assert last["crash"].container_statuses[0].state.waiting.reason == "CrashLoopBackOff"

    node.write("new", manifest("new", main=FOREVER))
    began = datetime.now(UTC)
    async with node.run() as agent:

        def are_all_as_before(pods: dict[str, Pod]) -> bool:
            seen = {name: pod.status for name, pod in pods.items() if name in last}
            assert seen == {name: last[name] for name in seen}
            return seen.keys() == last.keys()

        await agent.until(are_all_as_before, what="the first status of each pod")
        [ready] = await agent.recorded("new", "Ready")
        for name in last:
            await agent.recorded(name, "Adopted")
        assert {name: pod.status for name, pod in (await agent.pods()).items() if name in last} == last
        assert containers.items() <= (await starts_seen(cri)).items()
        assert (datetime.fromisoformat(ready["at"]) - began).total_seconds() < DEADLINE

        # Its back-off goes on: ten seconds after its end, not at once and not from the start again.
        restarted, _ = await agent.recorded("crash", "Started", "BackOff")
        ended = last["crash"].container_statuses[0].last_state.terminated.finished_at
        assert 9 <= (datetime.fromisoformat(restarted["at"]) - ended).total_seconds() <= 10 + DEADLINE

        def backs_off_for_longer(pods: dict[str, Pod]) -> bool:
            waiting = pods["crash"].status.container_statuses[0].state.waiting
            return waiting is not None and waiting.message.startswith("back-off 20s ")

        await agent.until(backs_off_for_longer, what="the next back-off")
        assert [c.restart_count for c in (await agent.pod("crash")).status.container_statuses] == [2]
        flips = [r for r in await records(agent, since=began.isoformat()) if r["decision"] in FLIPS]
        assert {r["subject"]["name"] for r in flips} <= {"new-node", "crash-node"}
        assert "Traceback" not in agent.log


async def test_a_pull_that_failed_is_tried_again_when_its_back_off_is_over_and_no_sooner(node, manifest):
    def is_backing_off(pods: dict[str, Pod]) -> bool:
        [status] = pods["web"].status.container_statuses if "web" in pods else [None]
        waiting = status.state.waiting if status is not None else None
        return waiting is not None and waiting.reason == "ImagePullBackOff"

    pod = manifest("web", main=FOREVER)
    pod["spec"]["containers"][0]["image"] = "127.0.0.1:1/nobody/listens:1"
    async with node.run() as agent:
        node.write("web", pod)
        [failed] = await agent.recorded("web", "Failed")
        await agent.until(is_backing_off, what="the back-off")
        last = (await agent.pod("web")).status
        await node.remembers({"web": last})
        await agent.kill()
    async with node.run() as agent:
        # Nothing changes at first, so only this record shows that the pod was adopted.
        await agent.recorded("web", "Adopted")
        assert (await agent.pod("web")).status == last
        _, pulling = await agent.recorded("web", "BackOff", "Pulling")
        waited = datetime.fromisoformat(pulling["at"]) - datetime.fromisoformat(failed["at"])
        assert 9.9 <= waited.total_seconds() <= DEADLINE + 10
        assert "Traceback" not in agent.log


async def test_a_damaged_memory_is_set_aside_and_affects_no_pod(node, manifest, cri):
    node.write("web", manifest("web", main=FOREVER))
    async with node.run() as agent:
        await agent.recorded("web", "Ready")
        containers = await starts_seen(cri)
        await agent.kill()
    (node.root / "klet-memory.json").write_text('{"kind": "AgentMemory"')
    async with node.run() as agent:
        await agent.recorded("web", "PodAdded", "Ready")
        assert await starts_seen(cri) == containers
        assert "Checkpoint is damaged and was set aside" in agent.log
    assert len(list(node.root.glob("klet-memory.json.corrupt-*"))) == 1
