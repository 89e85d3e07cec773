"""Volumes on real mounts: modes, owners, sizes, and what is left afterwards."""

import os
import stat
import subprocess

import pytest

from klet.host import mounts
from klet.host.errors import MountError
from klet.host.mountinfo import find_mount
from klet.volumes.errors import OrphanKept
from klet.volumes.orphans import remove_orphan

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]

GROUP, USER = 4242, 4343
TOKEN = {"projected": {"defaultMode": 0o644, "sources": [{"serviceAccountToken": {"path": "s/f"}}]}}


def config(mode):
    return {"configMap": {"name": "cfg", "defaultMode": mode, "items": [{"key": "a", "path": "s/f"}]}}


def secret(mode, item_mode=None):
    item = {"key": "k", "path": "s/f", **({"mode": item_mode} if item_mode is not None else {})}
    return {"secret": {"secretName": "key", "defaultMode": mode, "items": [item]}}


def seen(path):
    found = path.stat()
    return (oct(stat.S_IMODE(found.st_mode)), found.st_uid, found.st_gid)


@pytest.mark.parametrize(
    ("plugin", "source", "context", "volume", "directories", "file"),
    [
        pytest.param("configmap", config(0o644), {}, (0o777, 0, 0), (0o755, 0, 0), (0o644, 0, 0), id="a config map"),
        pytest.param(
            "configmap",
            config(0o400),
            {"fsGroup": GROUP},
            (0o2777, 0, GROUP),
            (0o2755, 0, GROUP),
            (0o440, 0, GROUP),
            id="a config map for a group",
        ),
        pytest.param("secret", secret(0o644), {}, (0o1777, 0, 0), (0o755, 0, 0), (0o644, 0, 0), id="a secret"),
        pytest.param(
            "secret",
            secret(0o644, 0o600),
            {"fsGroup": GROUP},
            (0o3777, 0, GROUP),
            (0o2755, 0, GROUP),
            (0o640, 0, GROUP),
            id="a secret for a group",
        ),
        pytest.param("projected", TOKEN, {}, (0o1777, 0, 0), (0o755, 0, 0), (0o644, 0, 0), id="a token"),
        pytest.param(
            "projected",
            TOKEN,
            {"runAsUser": USER},
            (0o1777, 0, 0),
            (0o755, 0, 0),
            (0o600, USER, 0),
            id="a token for a user",
        ),
        pytest.param(
            "projected",
            TOKEN,
            {"fsGroup": GROUP},
            (0o3777, 0, GROUP),
            (0o2755, 0, GROUP),
            (0o640, 0, GROUP),
            id="a token for a group",
        ),
        pytest.param(
            "projected",
            TOKEN,
            {"runAsUser": USER, "fsGroup": GROUP},
            (0o3777, 0, GROUP),
            (0o2755, 0, GROUP),
            (0o640, USER, GROUP),
            id="a token for a user and a group",
        ),
    ],
)
async def test_modes_and_owners(life, pod_with, plugin, source, context, volume, directories, file):
    node = life()
    await node.volumes.wait_for_attach_and_mount(pod_with(source, securityContext=context))
    path = node.path(plugin)
    assert seen(path) == (oct(volume[0]), *volume[1:])
    assert seen(path / "..data/") == (oct(directories[0]), *directories[1:])
    assert seen(path / "..data/s") == (oct(directories[0]), *directories[1:])
    assert seen(path / "s/f") == (oct(file[0]), *file[1:])


@pytest.mark.parametrize(
    ("medium", "context", "expected"),
    [
        pytest.param("", {}, (0o777, 0, 0), id="on disk"),
        pytest.param("", {"fsGroup": GROUP}, (0o2777, 0, GROUP), id="on disk for a group"),
        pytest.param("Memory", {}, (0o1777, 0, 0), id="in memory"),
        pytest.param("Memory", {"fsGroup": GROUP}, (0o3777, 0, GROUP), id="in memory for a group"),
    ],
)
async def test_scratch_space(life, pod_with, medium, context, expected):
    node = life()
    await node.volumes.wait_for_attach_and_mount(pod_with({"emptyDir": {"medium": medium}}, securityContext=context))
    assert seen(node.path("empty-dir")) == (oct(expected[0]), *expected[1:])


def kernel_knows_noswap(directory) -> bool:
    """Linux 6.4 brought the option, and some distributions have it in older kernels."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "noswap", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


async def test_memory_has_a_size_and_is_not_swapped_out_where_the_kernel_can(life, pod_with, tmp_path):
    node = life()
    await node.volumes.wait_for_attach_and_mount(pod_with({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}))
    path = node.path("empty-dir")
    found = os.statvfs(path)
    assert found.f_blocks * found.f_frsize == 1 << 20
    assert ("noswap" in find_mount(mounts.list_mounts(), str(path)).super_options) is kernel_knows_noswap(tmp_path)


async def test_secrets_are_never_on_disk(life, pod_with):
    node = life()
    await node.volumes.wait_for_attach_and_mount(pod_with(secret(0o644)))
    assert find_mount(mounts.list_mounts(), str(node.path("secret"))).fs_type == "tmpfs"


async def test_nothing_is_left(life, pod_with, root):
    node = life()
    pod = pod_with(
        {"name": "a", "emptyDir": {"medium": "Memory"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", **secret(0o644)},
        {"name": "d", **config(0o644)},
        {"name": "e", **TOKEN},
        {"name": "f", "hostPath": {"path": "/proc"}},
    )
    await node.volumes.wait_for_attach_and_mount(pod)
    (node.path("empty-dir", "b") / "file").write_text("x")
    assert await node.volumes.pod_volumes_exist("u")
    await node.orphans.remove("u")
    assert list((root / "pods").iterdir()) == []
    assert len(mounts.mounts_under(mounts.list_mounts(), str(root))) == 1


async def test_a_new_life_keeps_what_is_there(life, pod_with):
    pod = pod_with({"name": "a", "emptyDir": {"medium": "Memory"}}, {"name": "c", **secret(0o644)})
    first = life()
    await first.volumes.wait_for_attach_and_mount(pod)
    (first.path("empty-dir", "a") / "file").write_text("x")
    before = (first.path("secret", "c") / "..data").readlink()
    second = life()
    await second.volumes.wait_for_attach_and_mount(pod)
    assert (second.path("empty-dir", "a") / "file").read_text() == "x"
    assert (second.path("secret", "c") / "..data").readlink() == before


async def test_a_life_that_never_knew_the_pod_removes_all_of_it(life, pod_with, root):
    await life().volumes.wait_for_attach_and_mount(pod_with({"name": "a", "emptyDir": {"medium": "Memory"}}, TOKEN))
    await life().orphans.remove("u")
    assert list((root / "pods").iterdir()) == []
    assert len(mounts.mounts_under(mounts.list_mounts(), str(root))) == 1


async def test_a_mount_of_others_in_a_volume_is_left_alone(life, pod_with, root):
    """A container with bidirectional propagation can leave one."""
    node = life()
    await node.volumes.wait_for_attach_and_mount(pod_with({"emptyDir": {}}))
    inner, precious = node.path("empty-dir") / "inner", root / "precious"
    inner.mkdir()
    precious.mkdir()
    (precious / "file").touch()
    mounts.bind(precious, inner)
    node.volumes.process(pod_with({"emptyDir": {}}))
    with pytest.raises(OrphanKept, match="failed to rmdir"):
        remove_orphan(root / "pods" / "u", "u")
    assert (precious / "file").exists()
    mounts.unmount(inner)
    await node.orphans.remove("u")
    assert (precious / "file").exists()


async def test_a_volume_that_is_busy_stays_until_it_is_not(life, pod_with, root):
    node = life()
    await node.volumes.wait_for_attach_and_mount(pod_with(secret(0o644)))
    holder = os.open(node.path("secret") / "..data/", os.O_RDONLY)
    try:
        with pytest.raises(MountError, match="busy"):
            mounts.unmount(node.path("secret"))
        assert await node.volumes.pod_volumes_exist("u")
    finally:
        os.close(holder)
    await node.orphans.remove("u")
    assert list((root / "pods").iterdir()) == []
