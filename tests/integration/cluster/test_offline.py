"""A node with `--klet-offline` and a real control plane: the API server is away when the machine starts again."""

import pytest

from klet.aio.clock import SystemClock
from klet.api.config import ConfigMap, Secret
from klet.api.meta import ObjectMeta
from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, remove_pods
from klet.wire import cri_v1_pb2 as pb

FLAGS = ("--klet-leave-kernel-tunables", "--klet-offline", "--klet-offline-after=1s")
SHOW = "cat /cfg/color /key/word; echo $COLOR; cat /var/run/secrets/kubernetes.io/serviceaccount/token"
VOLUMES = {
    "automountServiceAccountToken": True,
    "volumes": [
        {"name": "cfg", "configMap": {"name": "offline-cfg"}},
        {"name": "key", "secret": {"secretName": "offline-key"}},
    ],
}


@pytest.fixture
async def cri(containerd):
    async with connect(runtime_endpoint=containerd.endpoint, timeout=REQUEST_TIMEOUT) as runtime:
        yield runtime


@pytest.fixture(autouse=True)
def nothing_refused(control_plane, node):
    """An API server that has just started does not know at first which objects the node's pods use."""
    yield
    refused = control_plane.refused(f"system:node:{node.name}")
    assert [each for each in refused if "no relationship found between node" not in each] == []


def is_running(pod):
    return pod.status.phase == "Running" and all(each.ready for each in pod.status.container_statuses)


def using_objects(built):
    [container] = built["spec"]["containers"]
    container["volumeMounts"] = [{"name": name, "mountPath": f"/{name}"} for name in ("cfg", "key")]
    container["env"] = [{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "offline-cfg", "key": "color"}}}]
    return built


async def show(cri, container):
    answer = await cri.exec_sync(pb.ExecSyncRequest(container_id=container, cmd=["sh", "-c", SHOW], timeout=10))
    assert answer.exit_code == 0, answer.stderr
    return answer.stdout.decode()


async def running(cri):
    """Containers that run, by the name of their pod."""
    wanted = pb.ContainerFilter(state=pb.ContainerStateValue(state=pb.CONTAINER_RUNNING))
    answer = await cri.list_containers(pb.ListContainersRequest(filter=wanted))
    return {each.labels["io.kubernetes.pod.name"]: each.id for each in answer.containers}


async def test_after_a_reboot_without_the_api_server_pods_run_again(api, node, manifest, cri, control_plane):
    color = ConfigMap(metadata=ObjectMeta(name="offline-cfg"), data={"color": "green"})
    await api.client.create(color, "default")
    word = Secret(metadata=ObjectMeta(name="offline-key"), data={"word": b"hush-hush"})
    await api.client.create(word, "default")
    async with node.running(node.klet(*FLAGS)):
        await api.create(using_objects(manifest("offline-web", spec=VOLUMES)), node=node.name)
        await api.create(manifest("offline-gone"), node=node.name)
        once = manifest("offline-job", main="true", spec={"restartPolicy": "Never"})
        await api.create(once, node=node.name)
        before = await api.until_pod("offline-web", is_running, what="running")
        await api.until_pod("offline-gone", is_running, what="running")
        await api.until_pod("offline-job", lambda pod: pod.status.phase == "Succeeded", what="over")
        shown = await show(cri, (await running(cri))["offline-web"])
    assert shown.startswith("greenhush-hushgreen\n")
    await api.delete("offline-gone")
    await control_plane.api_server.kill()
    # As after a reboot: nothing runs, and what was in memory is not there any more.
    await remove_pods(cri, clock=SystemClock())
    node.unmount_all()
    agent = node.klet(*FLAGS)
    async with node.running(agent):
        found = await api.until(lambda: running(cri), lambda pods: pods.keys() >= {"offline-web", "offline-gone"})
        assert found.keys() == {"offline-web", "offline-gone"}, f"the agent says: {agent.log.read_text()}"
        assert await show(cri, found["offline-web"]) == shown
        control_plane.api_server.start()
        await control_plane.until_ready()
        await api.until_gone("offline-gone")
        after = await api.until_pod(
            "offline-web",
            lambda pod: (
                is_running(pod) and pod.status.container_statuses[0].container_id.endswith(found["offline-web"])
            ),
            what="the container that was started meanwhile",
        )
        assert after.metadata.uid == before.metadata.uid
        assert after.status.start_time == before.status.start_time
        await api.create(manifest("offline-new"), node=node.name)
        await api.until_pod("offline-new", is_running, what="running")
        assert (await running(cri)).items() >= {"offline-web": found["offline-web"]}.items()
        assert api.pods.get("offline-job", "default").status.phase == "Succeeded"
        made = (await cri.list_containers(pb.ListContainersRequest())).containers
        assert "offline-job" not in {each.labels["io.kubernetes.pod.name"] for each in made}
    kept = [path for path in (node.root / "klet-offline").rglob("*") if path.is_file()]
    token = shown.rpartition("\n")[2]
    assert len(token) > 100
    assert not any(text.encode() in path.read_bytes() for path in kept for text in ("hush-hush", token))
