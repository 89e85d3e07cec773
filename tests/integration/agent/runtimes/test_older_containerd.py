"""What containerd 1.6 lacks is reported in upstream's words, and the rest of the node goes on."""

from contextlib import aclosing

import pytest

from klet.cri.errors import Unimplemented
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]


@pytest.fixture(autouse=True)
async def _is_that_old(cri):
    version = (await cri.version(pb.VersionRequest())).runtime_version
    if not version.startswith("1.6."):
        pytest.skip(f"only with containerd 1.6: the machine has {version}")


async def test_user_namespaces(node, manifest):
    node.write("users", manifest("users", main="sleep 1000", spec={"hostUsers": False}))
    async with node.run() as agent:
        (failure,) = await agent.recorded("users", "FailedCreatePodSandBox")
        why = "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
        assert failure["message"] == f"Failed to create pod sandbox: {why}"


async def test_recursive_read_only_mounts(node, manifest, nested):
    for name, mode in (("must", "Enabled"), ("may", "IfPossible")):
        pod = manifest(name, main="grep ' /data' /proc/self/mountinfo; sleep 1000")
        pod["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": str(nested)}}]
        mount = {"name": "data", "mountPath": "/data", "readOnly": True, "recursiveReadOnly": mode}
        pod["spec"]["containers"][0]["volumeMounts"] = [mount]
        node.write(name, pod)
    async with node.run() as agent:
        await agent.recorded("must", "PodAdded")
        why = 'volume "data" requested recursive read-only mode, but it is not supported by the runtime'
        await agent.until(
            lambda pods: any(
                status.state.waiting is not None
                and status.state.waiting.reason == "CreateContainerConfigError"
                and status.state.waiting.message == f"failed to resolve recursive read-only mode: {why}"
                for status in pods["must"].status.container_statuses
            ),
            what="the refusal",
        )
        await agent.recorded("may", "Ready")
        assert " /data ro" in await agent.first_line("may", "main")


async def test_its_own_events_are_followed_for_it_has_none_of_the_cri(node, cri, manifest):
    with pytest.raises(Unimplemented):
        async with aclosing(cri.get_container_events(pb.GetEventsRequest())) as events:
            await anext(events)
    node.write("short", manifest("short", main="exit 0", spec={"restartPolicy": "Never"}))
    async with node.run() as agent:
        await agent.until(lambda pods: pods.get("short") and pods["short"].status.phase == "Succeeded", what="the end")
        assert "no such event stream" not in agent.log


async def test_the_configuration_says_who_makes_cgroups(node, cri):
    with pytest.raises(Unimplemented):
        await cri.runtime_config(pb.RuntimeConfigRequest())
    async with node.run() as agent:
        assert "The runtime does not report its cgroup driver" in agent.log
