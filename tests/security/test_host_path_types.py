"""hostPath types: a container must not get something of another kind than its pod asked for, nor a path with `..`."""

import os
import socket

KINDS = ("directory", "file", "socket", "pipe", "char", "block", "link-to-file", "link-to-nothing", "missing")
ACCEPTED = {
    "Directory": {"directory"},
    "File": {"file", "link-to-file"},
    "Socket": {"socket"},
    "CharDevice": {"char"},
    "BlockDevice": {"block"},
}


def make(directory):
    """One thing of each kind."""
    directory.mkdir()
    (directory / "directory").mkdir()
    (directory / "file").write_text("x")
    (directory / "link-to-file").symlink_to("file")
    (directory / "link-to-nothing").symlink_to("nothing")
    os.mkfifo(directory / "pipe")
    os.mknod(directory / "char", 0o20600, os.makedev(1, 3))
    os.mknod(directory / "block", 0o60600, os.makedev(7, 250))
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(directory / "socket"))


def mounting(path, kind):
    container = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    return {"main": container, "spec": {"volumes": [{"name": "v", "hostPath": {"path": str(path), "type": kind}}]}}


async def test_each_type_takes_its_own_kind_alone(attack, pod, outside):
    things = outside / "t"
    make(things)
    before = sorted(things.rglob("*"))
    async with attack() as target:
        refused, given = [], []
        for number, (kind, fitting) in enumerate(ACCEPTED.items()):
            for thing in KINDS:
                name = f"p{number}-{thing}"
                target.node.write(name, pod(name, **mounting(things / thing, kind)))
                (given if thing in fitting else refused).append(name)
        for name in refused:
            [record] = await target.agent.recorded(name, "FailedMount")
            assert "hostPath type check failed" in record["message"]
        for name in given:
            await target.agent.recorded(name, "Started")
        paths = {mount.host_path for each in target.created() for mount in each.mounts if mount.container_path == "/v"}
        assert paths == {str(things / thing) for fitting in ACCEPTED.values() for thing in fitting}
    assert sorted(things.rglob("*")) == before


async def test_what_may_be_made_replaces_nothing(attack, pod, outside):
    things = outside / "t"
    make(things)
    before = sorted(things.rglob("*"))
    async with attack() as target:
        for kind, thing in (("DirectoryOrCreate", "file"), ("DirectoryOrCreate", "socket"), ("FileOrCreate", "pipe")):
            name = f"{kind}-{thing}".lower()
            target.node.write(name, pod(name, **mounting(things / thing, kind)))
            await target.agent.recorded(name, "FailedMount")
        assert target.created() == []
    assert sorted(things.rglob("*")) == before


async def test_a_path_with_steps_back_or_an_unknown_type_is_no_pod(attack, pod, outside):
    async with attack() as target:
        for number, (path, kind) in enumerate((("/a/../b", ""), (f"{outside}/..", ""), (str(outside), "Anything"))):
            target.node.write(f"web{number}", pod(f"web{number}", **mounting(path, kind)))
        await target.start(pod("zz-last"))
        assert set(await target.agent.pods()) == {"zz-last"}
