"""Deletion through volumes of config maps, secrets and the downward API (CVE-2017-1002102).

Somebody who can write to the volume on the host puts links where klet rewrites and removes files.
"""

import asyncio
from contextlib import aclosing, suppress

from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.host.inotify import watch_directory
from klet.testing.builders import IMAGE


def config_map(value):
    return ConfigMap(metadata=ObjectMeta(name="cfg"), data={"key": value, "flag": value})


def link_data(volume, outside):
    (volume / "..data").unlink()
    (volume / "..data").symlink_to(outside)


def link_payload(volume, outside):
    payload = volume / (volume / "..data").readlink()
    payload.rename(volume / "..away")
    payload.symlink_to(outside)


def link_files(volume, outside):
    for name in ("key", "flag"):
        (volume / name).unlink()
        (volume / name).symlink_to(outside / "flag")


def link_leftovers(volume, outside):
    (volume / "..data_tmp").symlink_to(outside)
    (volume / "..2030_01_01_00_00_00.1234").symlink_to(outside)
    (volume / "old-key").symlink_to(outside)


def swap_the_volume(volume, outside):
    volume.rename(volume.with_name("away"))
    volume.symlink_to(outside)


LINKS = (link_data, link_payload, link_files, link_leftovers, swap_the_volume)


def files_of(directory):
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in directory.rglob("*")}


def make_precious(directory):
    """Files of the host, with names such as a volume has."""
    payload = directory / "..2029_01_01_00_00_00.1"
    payload.mkdir(parents=True)
    for file in (directory / "key", directory / "flag", directory / "old-key", payload / "key"):
        file.write_text("of the host")


async def bind(target, name):
    mounts = [{"name": "v", "mountPath": "/v"}]
    spec = {
        "containers": [{"name": "main", "image": IMAGE, "volumeMounts": mounts}],
        "volumes": [{"name": "v", "configMap": {"name": "cfg"}}],
    }
    pod = await target.cluster.bind(name, spec)
    await target.agent.until(lambda pods: name in pods and pods[name].status.phase == "Running", what=name)
    return target.volume(pod.metadata.uid, "configmap", "v")


async def test_neither_an_update_nor_the_end_of_the_pod_touches_the_host(attack, outside):
    async with attack(cluster=True) as target:
        client = target.cluster.client
        await client.create(config_map("one"), "default")
        volumes = {
            link.__name__.replace("_", "-"): await bind(target, link.__name__.replace("_", "-")) for link in LINKS
        }
        for link, (name, volume) in zip(LINKS, volumes.items(), strict=True):
            assert (volume / "key").read_text() == "one"
            make_precious(outside / name)
            link(volume, outside / name)
        before = files_of(outside)
        await client.patch(ConfigMap, "cfg", "default", patch={"data": {"key": "two", "flag": "two", "more": "two"}})
        for name in ("link-data", "link-payload", "link-files", "link-leftovers"):
            await until_shown(volumes[name] / "..data", "key", "two")
        for name in volumes:
            await client.delete(Pod, name, "default", grace=0)
        await target.agent.until(lambda pods: not pods, what="the end of the pods")
        await target.agent.until_recorded(removed(target), what="the end of their directories")
    assert files_of(outside) == before


async def until_shown(data, key, value):
    async with asyncio.timeout(20), aclosing(watch_directory(data.parent)) as changes:
        async for _ in changes:
            with suppress(OSError):
                if (data / key).read_text() == value:
                    return


def removed(target):
    async def holds():
        return not any((target.node.root / "pods").iterdir())

    return holds
