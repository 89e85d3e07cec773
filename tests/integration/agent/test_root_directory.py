"""The root directory on the machine's own mounts, in a mount namespace that ends with the test."""

import shutil
import subprocess
import sys

import pytest

from klet.host.mounts import has_mounts_under

pytestmark = [pytest.mark.root]

SCRIPT = """
import sys
from pathlib import Path
from klet.host.root_directory import make_root
from klet.host import mounts
from klet.host.mountinfo import containing_mount, is_bound_on_itself, mounts_under

def seen():
    table = mounts.list_mounts()
    at = containing_mount(table, str(root))
    count = len(mounts_under(table, str(base)))
    return at.mount_point == str(root), at.is_shared, is_bound_on_itself(table, str(root)), count

base = Path(sys.argv[1])
root = base / "kubelet"
mounts.mount("klet-test", base, fs_type="tmpfs")
mounts.set_propagation(base, mounts.Propagation.PRIVATE)
make_root(root, mounts)
print(*seen())
make_root(root, mounts)
print(*seen())
volume = root / "pods" / "volume"
volume.mkdir()
mounts.mount("klet-test", volume, fs_type="tmpfs")
print(containing_mount(mounts.list_mounts(), str(volume)).is_shared)
mounts.unmount(volume)
mounts.unmount(root)
print(*seen())
"""


def test_it_is_bound_on_itself_once_and_shared_with_all_below(tmp_path):
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare: apt-get install util-linux")
    command = [unshare, "--mount", "--propagation", "private", sys.executable, "-P", "-c", SCRIPT, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["True True True 2", "True True True 2", "True", "False False False 1"]


@pytest.mark.containerd
async def test_a_second_agent_on_the_same_directory_refuses_and_the_first_goes_on(node, manifest):
    node.write("one", manifest("one", main="exec sleep 1000"))
    async with node.run() as agent:
        await agent.recorded("one", "Started")
        code, said = await node.run_to_end(f"--config={node.config}", "--hostname-override=other")
        assert code == 1
        assert f"the root directory {node.root} (--root-dir) is in use by" in said
        assert f"(pid {agent.process.pid})" in said
        assert (await agent.pod("one")).status.phase == "Running"
        await agent.kill()
    async with node.run() as again:

        async def is_known():
            return "one" in await again.pods()

        await again.until_recorded(is_known, what="the pod")


@pytest.mark.containerd
async def test_a_mount_that_a_container_makes_reaches_its_neighbour_and_the_node(node, manifest):
    maker = (
        "trap 'umount /data/made; exit 0' TERM; mkdir /data/made; mount -t tmpfs tmpfs /data/made; "
        "echo here > /data/made/file; while true; do sleep 1000 & wait $!; done"
    )
    reader = "until cat /data/made/file 2>/dev/null; do sleep 0.05; done; exec sleep 1000"
    pod = manifest("web", spec={"volumes": [{"name": "data", "emptyDir": {}}]}, maker=maker, reader=reader)
    for container, propagation in zip(pod["spec"]["containers"], ("Bidirectional", "HostToContainer"), strict=True):
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data", "mountPropagation": propagation}]
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    async with node.run() as agent:
        node.write("web", pod)
        await agent.recorded("web", "Started", "Started", "Ready")
        assert await agent.first_line("web", "reader") == "here\n"
        uid = (await agent.pod("web")).metadata.uid
        made = node.root / "pods" / uid / "volumes/kubernetes.io~empty-dir/data/made"
        assert (made / "file").read_text() == "here\n"
        node.remove("web")
        await agent.recorded("web", "Finished", "Removed")
        assert not has_mounts_under(node.root / "pods")
