"""subPath through a link out of the volume (CVE-2017-1002101, CVE-2021-25741), in init containers too.

Races for it are in `node/test_sub_path_races.py`. All that a broken klet could bind is in directories of the test.
"""

import os
from pathlib import Path

REFUSED = "CreateContainerConfigError"


def absolute(volume, outside):
    (volume / "part").symlink_to(outside)
    return "part"


def upwards(volume, outside):
    (volume / "part").symlink_to(os.path.relpath(outside, volume))
    return "part"


def on_the_way(volume, outside):
    (outside / "part").mkdir()
    (volume / "way").symlink_to(outside)
    return "way/part"


def to_a_file(volume, outside):
    (volume / "part").symlink_to(outside / "flag")
    return "part"


def chain(volume, outside):
    (volume / "one").symlink_to("two")
    (volume / "two").symlink_to(outside)
    return "one"


def in_circles(volume, outside):
    (volume / "part").symlink_to("part")
    return "part"


LINKS = (absolute, upwards, on_the_way, to_a_file, chain, in_circles)


def victim(sub_path, **fields):
    return {"volumeMounts": [{"name": "data", "mountPath": "/part", "subPath": sub_path, **fields}]}


def with_volume(volume):
    return {"volumes": [{"name": "data", "hostPath": {"path": str(volume)}}]}


async def test_no_container_gets_what_is_outside(attack, pod, tmp_path, outside):
    async with attack() as target:
        for link in LINKS:
            name = link.__name__.replace("_", "-")
            volume, host = tmp_path / name, outside / name
            for directory in (volume, host):
                directory.mkdir()
            (host / "flag").write_text("flag of the host")
            mounts = victim(link(volume, host))
            before = sorted(host.rglob("*"))
            target.node.write(name, pod(name, victim=mounts, spec=with_volume(volume)))
            target.node.write(f"{name}-init", pod(f"{name}-init", init={"first": mounts}, spec=with_volume(volume)))
            for pod_name, container in ((name, "victim"), (f"{name}-init", "first")):
                message = await target.waiting(pod_name, container, reason=REFUSED)
                assert message.startswith(("failed to prepare subPath", "failed to create subPath directory"))
            assert sorted(host.rglob("*")) == before
        assert target.created() == []


def content_of(directory):
    assert not Path(directory).is_symlink()
    return (Path(directory) / "file").read_text()


async def test_what_stays_inside_is_given(attack, pod, tmp_path):
    """Without this the refusals would prove nothing."""
    volume = tmp_path / "volume"
    (volume / "real").mkdir(parents=True)
    (volume / "real" / "file").write_text("of the volume")
    (volume / "part").symlink_to("real")
    async with attack() as target:
        await target.start(pod("web", main=victim("part"), spec=with_volume(volume)))
        [mount] = [each for each in target.created("main")[0].mounts if each.container_path == "/part"]
        assert content_of(mount.host_path) == "of the volume"


async def test_a_path_that_leaves_by_its_text_is_no_pod(attack, pod, tmp_path, outside):
    volume = tmp_path / "volume"
    volume.mkdir()
    async with attack() as target:
        for number, sub_path in enumerate((f"../{outside.name}", str(outside), "a/../../b", "..")):
            target.node.write(f"web{number}", pod(f"web{number}", main=victim(sub_path), spec=with_volume(volume)))
        await target.start(pod("zz-other"))
        assert set(await target.agent.pods()) == {"zz-other"}


async def test_a_variable_does_not_lead_out(attack, pod, tmp_path, outside):
    volume = tmp_path / "volume"
    volume.mkdir()
    async with attack() as target:
        mounts = {"volumeMounts": [{"name": "data", "mountPath": "/part", "subPathExpr": "$(WAY)"}]}
        for number, value in enumerate((f"../{outside.name}", str(outside), "a/../../b")):
            fields = mounts | {"env": [{"name": "WAY", "value": value}]}
            target.node.write(f"web{number}", pod(f"web{number}", main=fields, spec=with_volume(volume)))
            await target.waiting(f"web{number}", "main", reason=REFUSED)
        assert target.created() == []


async def test_a_directory_that_becomes_a_link_is_not_followed_by_the_next_start(attack, pod, tmp_path, outside):
    volume = tmp_path / "volume"
    (volume / "part").mkdir(parents=True)
    async with attack() as target:
        await target.start(pod("web", victim=victim("part"), spec=with_volume(volume)))
        (volume / "part").rmdir()
        (volume / "part").symlink_to(outside)
        target.runtime.end_container(target.container("victim").id, 1)
        await target.waiting("web", "victim", reason=REFUSED)
        assert len(target.created("victim")) == 1
