"""Volumes as processes in real containers see them, through the life and death of the agent."""

from pathlib import Path

import pytest

from klet.host.mounts import has_mounts_under, unmount_tree
from klet.wire import cri_v1_pb2 as pb

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
WRITER = f"echo shared > /shared/file; stat -f -c %T /memory; touch /down/x 2>&1; cat /down/name; echo; {FOREVER}"
READER = (
    "until [ -s /shared/file ]; do sleep 0.05; done; cat /shared/file; echo part > /part/file; "
    f"echo host > /host/file; echo done; {FOREVER}"
)


@pytest.fixture(autouse=True)
def _no_mounts_left(node):
    """A test that fails half-way leaves mounts, which would keep its directory from being removed."""
    yield
    unmount_tree(node.root, lazy=True)


@pytest.fixture
def pod(manifest, tmp_path):
    """Two containers that share volumes of four kinds, and a part of one."""
    name = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    volumes = [
        {"name": "shared", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "down", "downwardAPI": {"items": [name]}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "srv"), "type": "DirectoryOrCreate"}},
    ]
    made = manifest("web", writer=WRITER, reader=READER, spec={"volumes": volumes})
    writer, reader = made["spec"]["containers"]
    writer["volumeMounts"] = [{"name": name, "mountPath": f"/{name}"} for name in ("shared", "memory", "down")]
    reader["volumeMounts"] = [
        {"name": "shared", "mountPath": "/shared"},
        {"name": "memory", "mountPath": "/part", "subPath": "a/part"},
        {"name": "host", "mountPath": "/host"},
    ]
    return made


async def started(agent) -> Path:
    """The pod's directory below the root, once its containers have done what they do."""
    await agent.recorded("web", "Ready")
    said = await agent.said("web", "writer", until="web-node")
    assert said.splitlines() == ["tmpfs", "touch: /down/x: Read-only file system", "web-node"]
    assert await agent.said("web", "reader", until="done") == "shared\ndone\n"
    return Path("pods") / (await agent.pod("web")).metadata.uid


async def container_ids(cri) -> set[str]:
    return {each.id for each in (await cri.list_containers(pb.ListContainersRequest())).containers}


def mounts_below(root: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(line.split()[4] for line in lines if line.split()[4].startswith(f"{root}/"))


async def test_containers_share_volumes_and_nothing_is_left_of_them(node, pod, tmp_path):
    async with node.run() as agent:
        node.write("web", pod)
        directory = node.root / await started(agent)
        volumes = directory / "volumes"
        assert mounts_below(node.root) == [
            str(directory / "volume-subpaths/memory/reader/1"),
            str(volumes / "kubernetes.io~downward-api/down"),
            str(volumes / "kubernetes.io~empty-dir/memory"),
        ]
        assert (volumes / "kubernetes.io~empty-dir/shared/file").read_text() == "shared\n"
        assert (volumes / "kubernetes.io~empty-dir/memory/a/part/file").read_text() == "part\n"
        node.remove("web")
        await agent.recorded("web", "Finished", "Removed")
        assert not directory.exists()
        assert not has_mounts_under(node.root / "pods")
        assert (tmp_path / "srv/file").read_text() == "host\n"
        assert "Traceback" not in agent.log


async def test_volumes_outlive_the_agent(node, pod, cri):
    async with node.run() as agent:
        node.write("web", pod)
        directory = node.root / await started(agent)
        before, containers = mounts_below(node.root), await container_ids(cri)
        scratch = directory / "volumes/kubernetes.io~empty-dir"
        (scratch / "memory/mine").write_text("kept")
        await node.remembers({"web": (await agent.pod("web")).status})
        await agent.kill()
    async with node.run() as agent:
        await agent.recorded("web", "Adopted")
        node.write("next", {**pod, "metadata": {**pod["metadata"], "name": "next"}})
        await agent.recorded("next", "Ready")
        other = str(node.root / "pods" / (await agent.pod("next")).metadata.uid)
        assert [path for path in mounts_below(node.root) if not path.startswith(other)] == before
        assert containers < await container_ids(cri)
        assert (scratch / "memory/mine").read_text() == "kept"
        assert (scratch / "shared/file").read_text() == "shared\n"
        node.remove("web")
        await agent.recorded("web", "Removed")
        assert not directory.exists()


async def test_what_a_killed_agent_has_mounted_is_taken_down_by_the_next(node, pod):
    async with node.run() as agent:
        node.write("web", pod)
        directory = node.root / await started(agent)
        await agent.kill()
    node.remove("web")
    async with node.run() as agent:
        await agent.recorded("web", "Removed")
        assert not directory.exists()
        assert not has_mounts_under(node.root / "pods")
        assert "Traceback" not in agent.log
