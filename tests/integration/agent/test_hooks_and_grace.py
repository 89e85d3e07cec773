"""How containers end on real containerd: hooks, grace, sidecars, termination message, and what is kept of the dead."""

from datetime import datetime

import pytest

from klet.wire import cri_v1_pb2 as pb

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"


def with_hook(manifest: dict, *, index: int = 0, grace: int = 20, **hooks: dict) -> dict:
    """The manifest with hooks on one of its containers: `post_start` and `pre_stop`."""
    names = {"post_start": "postStart", "pre_stop": "preStop"}
    manifest["spec"]["terminationGracePeriodSeconds"] = grace
    manifest["spec"]["containers"][index]["lifecycle"] = {names[name]: hook for name, hook in hooks.items()}
    return manifest


def shell(script: str) -> dict:
    return {"exec": {"command": ["sh", "-c", script]}}


def instants(records: list[dict]) -> list[datetime]:
    return [datetime.fromisoformat(record["at"]) for record in records]


async def states(cri) -> dict[str, list[int]]:
    answer = await cri.list_containers(pb.ListContainersRequest())
    found: dict[str, list[int]] = {}
    for container in answer.containers:
        found.setdefault(container.metadata.name, []).append(container.metadata.attempt)
    return {name: sorted(attempts) for name, attempts in found.items()}


async def test_a_pod_is_stopped_after_its_hook(node, manifest, cri, tmp_path):
    """The hook speaks to the container through its file system, and the container waits for its word."""
    shared = tmp_path / "shared"
    shared.mkdir()
    pod = manifest(
        "web", main="trap 'echo term >> /shared/story; exit 0' TERM; while true; do sleep 1000 & wait $!; done"
    )
    pod = with_hook(pod, pre_stop=shell("echo hook >> /shared/story; sleep 1; echo done >> /shared/story"))
    pod["spec"]["volumes"] = [{"name": "shared", "hostPath": {"path": str(shared)}}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
    async with node.run() as agent:
        node.write("web", pod)
        await agent.recorded("web", "Ready")
        node.remove("web")
        records = await agent.recorded("web", "Killing", "PreStopHook", "Stopped", "Removed")
        assert records[0]["measurements"]["graceSeconds"] == 20
        assert (shared / "story").read_text().split() == ["hook", "done", "term"]


async def test_a_hook_that_hangs_is_cut_by_the_grace(node, manifest, cri):
    pod = with_hook(manifest("web", main=FOREVER), grace=2, pre_stop=shell("sleep 1000"))
    async with node.run() as agent:
        node.write("web", pod)
        await agent.recorded("web", "Ready")
        node.remove("web")
        killing, unfinished, stopped = instants(
            await agent.recorded("web", "Killing", "PreStopHookUnfinished", "Stopped")
        )
        assert 2 <= (unfinished - killing).total_seconds() < 3
        assert (stopped - unfinished).total_seconds() < 3


async def test_a_failing_hook_after_the_start_ends_the_container(node, manifest, cri):
    pod = with_hook(manifest("web", main=FOREVER), post_start=shell("echo why >&2; exit 5"))
    async with node.run() as agent:
        node.write("web", pod)
        await agent.recorded("web", "Started", "PostStartHook", "FailedPostStartHook", "Killing", "BackOff")
        status = (await agent.pod("web")).status.container_statuses[0]
        assert status.state.waiting.reason in {"PostStartHookError", "CrashLoopBackOff"}
        assert status.restart_count >= 1
        records = await agent.recorded("web", "FailedPostStartHook")
        assert records[0]["message"] == "PostStartHook failed"


async def test_a_hook_may_ask_the_container_itself(node, manifest, cri):
    """Any answer will do, also that there is no such page."""
    serve = "echo hello > /tmp/index.html; httpd -f -p 8080 -h /tmp"
    pod = manifest("web", main=serve)
    pod["spec"]["containers"][0]["ports"] = [{"name": "web", "containerPort": 8080}]
    ask = {"httpGet": {"path": "/nothing", "port": "web"}}
    async with node.run() as agent:
        node.write("web", with_hook(pod, grace=2, post_start=shell("sleep 1"), pre_stop=ask))
        await agent.recorded("web", "PostStartHook", "Ready")
        node.remove("web")
        await agent.recorded("web", "Killing", "PreStopHook", "Stopped", "Removed")
        story = await agent.text("/klet/v1/journal?name=web-node")
        assert "FailedPreStopHook" not in story


async def test_sidecars_end_last_and_in_reverse_order(node, manifest, cri, tmp_path):
    """Each takes half a second to end, and writes its name down when it is reported to and when it has."""
    shared = tmp_path / "shared"
    shared.mkdir()

    def slow(name: str) -> str:
        end = f"echo {name} >> /shared/reported; sleep 0.5; echo {name} >> /shared/ended; exit 0"
        return f"trap '{end}' TERM; while true; do sleep 1000 & wait $!; done"

    pod = manifest("web", init={name: slow(name) for name in ("one", "two")}, main=slow("main"))
    pod["spec"]["terminationGracePeriodSeconds"] = 20
    pod["spec"]["volumes"] = [{"name": "shared", "hostPath": {"path": str(shared)}}]
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        container["volumeMounts"] = [{"name": "shared", "mountPath": "/shared"}]
    for sidecar in pod["spec"]["initContainers"]:
        sidecar["restartPolicy"] = "Always"
    async with node.run() as agent:
        node.write("web", pod)
        await agent.recorded("web", "Ready")
        node.remove("web")
        await agent.recorded("web", "Killing", "Killing", "Killing", "Stopped", "Removed")
    assert (shared / "reported").read_text().split() == ["main", "two", "one"]
    assert (shared / "ended").read_text().split() == ["main", "two", "one"]


@pytest.mark.parametrize(
    ("script", "policy", "expected"),
    [
        pytest.param("echo broken > /dev/termination-log; exit 3", "File", "broken\n", id="from its file"),
        pytest.param("echo the end; exit 3", "FallbackToLogsOnError", "the end\n", id="from its log"),
        pytest.param("echo the end; exit 3", "File", "", id="not from its log"),
    ],
)
async def test_termination_messages_from_logs(node, manifest, cri, script, policy, expected):
    pod = manifest("job", main=script, spec={"restartPolicy": "Never"})
    pod["spec"]["containers"][0]["terminationMessagePolicy"] = policy
    async with node.run() as agent:
        node.write("job", pod)
        await agent.recorded("job", "Started", "Terminate", "Finished")
        [status] = (await agent.pod("job")).status.container_statuses
        assert (status.state.terminated.exit_code, status.state.terminated.message) == (3, expected)


async def test_of_a_crashing_container_the_last_end_is_kept(node, manifest, cri):
    async with node.run(crashLoopBackOff={"maxContainerRestartPeriod": "1s"}) as agent:
        node.write("crash", manifest("crash", main="echo boom; exit 3"))
        await agent.recorded("crash", *["Started"] * 5)
        assert await agent.text("/containerLogs/default/crash-node/main?previous=true") == "boom\n"
        assert len((await states(cri))["main"]) <= 3
        links = node.logs.parent / "containers"
        assert 1 <= len(list(links.iterdir())) <= 3
        node.remove("crash")
        await agent.recorded("crash", "Removed")
        assert list(links.iterdir()) == []
