"""Changes at the API server reach the files of running pods, at once and as a whole."""

import asyncio
import os
from contextlib import aclosing
from datetime import timedelta

import pytest

from klet.api.config import ConfigMap, Secret
from klet.api.meta import ObjectMeta
from klet.embedded import refusals
from klet.embedded.faults import Cut, RefuseRequest
from klet.host.inotify import watch_directory
from klet.volumes.atomic_writer import GRACE

CONFIG = {"configMap": {"name": "cfg", "defaultMode": 0o644}}
TOKEN = {
    "projected": {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "cfg"}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ],
    }
}


async def test_a_changed_config_map_is_in_the_file_within_the_budget(node, cluster, pod_with, budget):
    await cluster.put("cfg", x="1")
    pod = pod_with(CONFIG)
    await node.start(pod)
    path = node.path(pod)
    assert (path / "x").read_text() == "1"
    for text in ("2", "3", "4"):
        began = await node.change(x=text)
        assert await node.until_shown(path, "x", text) - began < budget


async def test_what_a_change_replaced_goes_when_its_time_is_over(node, cluster, pod_with):
    await cluster.put("cfg", x="1")
    pod = pod_with(CONFIG)
    await node.start(pod)
    path = node.path(pod)
    old = path / (path / "..data").readlink()
    await node.change(x="2")
    await node.until_shown(path, "x", "2")
    assert (old / "x").read_text() == "1"
    node.clock.ahead = GRACE
    async with asyncio.timeout(20), aclosing(watch_directory(path)) as changes:
        node.volumes.refresh_all()
        async for _ in changes:
            if not old.exists():
                break
    assert (path / "x").read_text() == "2"


async def test_all_pods_that_show_it_have_it_within_the_budget(node, cluster, pod_with, budget):
    await cluster.put("cfg", x="1")
    pods = [pod_with(CONFIG, uid=f"u{number}") for number in range(30)]
    await asyncio.gather(*map(node.start, pods))
    began = await node.change(x="2")
    shown = await asyncio.gather(*(node.until_shown(node.path(pod), "x", "2") for pod in pods))
    assert max(shown) - began < budget


async def test_a_changed_secret_is_in_the_file_within_the_budget(node, cluster, pod_with, budget):
    await cluster.client.create(Secret(metadata=ObjectMeta(name="key"), data={"k": b"1"}), "default")
    pod = pod_with({"secret": {"secretName": "key", "defaultMode": 0o400}})
    await node.start(pod)
    began = node.clock.monotonic()
    await cluster.client.patch(Secret, "key", "default", patch={"data": {"k": "Mg=="}})
    assert await node.until_shown(node.path(pod), "k", "2") - began < budget


async def test_other_labels_are_in_the_file_within_the_budget(node, cluster, pod_with, budget):
    await cluster.put("cfg", x="1")
    pod = await cluster.client.create(pod_with(TOKEN, serviceAccountName="default"), "default")
    await node.start(pod)
    assert (node.path(pod) / "labels").read_text() == 'app="x"'
    changed = await cluster.client.patch(
        type(pod), pod.metadata.name, "default", patch={"metadata": {"labels": {"app": "y"}}}
    )
    began = node.clock.monotonic()
    node.give(changed)
    assert await node.until_shown(node.path(pod), "labels", 'app="y"') - began < budget


async def test_a_token_is_renewed_when_it_is_due(node, cluster, pod_with):
    await cluster.put("cfg", x="1")
    pod = await cluster.client.create(pod_with(TOKEN, serviceAccountName="default"), "default")
    await node.start(pod)
    path = node.path(pod)
    first = (path / "token").read_text()
    assert cluster.api.identities.review(first, ()).name == "system:serviceaccount:default:default"
    node.clock.ahead = timedelta(minutes=49)
    await node.change(x="2")
    await node.until_shown(path, "x", "2")
    second = (path / "token").read_text()
    assert second != first
    assert cluster.api.identities.review(second, ()) is not None


def is_token_request(ask):
    return ask.path.endswith("/token")


async def until_other(path, name, text):
    """Wait for other content of a file."""
    async with asyncio.timeout(20), aclosing(watch_directory(path)) as changes:
        async for _ in changes:
            if (now := (path / name).read_text()) != text:
                return now
    raise AssertionError("a watch of a directory never ends")


async def test_a_token_is_renewed_over_days_and_an_outage(volume_node, cluster, pod_with):
    """Nothing happens at the API server: it is time alone that renews it."""
    await cluster.put("cfg", x="1")
    pod = await cluster.client.create(pod_with(TOKEN, serviceAccountName="default"), "default")
    node = volume_node(refresh=timedelta(milliseconds=100))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(node.run())
        await node.start(pod)
        path = node.path(pod)
        token = (path / "token").read_text()
        seen = {token}
        for ahead in (timedelta(minutes=49), timedelta(hours=25), timedelta(hours=60)):
            node.clock.ahead = ahead
            token = await until_other(path, "token", token)
            assert token not in seen
            seen.add(token)
        cluster.api.faults.plan(
            RefuseRequest(refusals.internal("no tokens today")), applies=is_token_request, times=100_000
        )
        node.journal.findings.clear()
        node.clock.ahead += timedelta(hours=5)
        async with asyncio.timeout(20):
            while not node.journal.findings:
                node.journal.arrived.clear()
                await node.journal.arrived.wait()
        assert "expired and refresh failed" in node.journal.findings[0].message
        # A volume that is there stays, also with a token that nobody accepts any more.
        assert (path / "token").read_text() == token
        assert "v" in node.volumes.mounted_volumes(pod.metadata.uid)
        cluster.api.faults.clear()
        renewed = await until_other(path, "token", token)
        assert cluster.api.identities.review(renewed, ()).name == "system:serviceaccount:default:default"
        running.cancel()


async def test_a_pod_that_comes_again_under_its_name_has_a_token_of_its_own(node, cluster, pod_with):
    await cluster.put("cfg", x="1")
    first = await cluster.client.create(pod_with(TOKEN, serviceAccountName="default"), "default")
    await node.start(first)
    old = (node.path(first) / "token").read_text()
    await node.end(first.metadata.uid)
    await cluster.client.delete(type(first), first.metadata.name, "default", grace=0)
    second = await cluster.client.create(pod_with(TOKEN, serviceAccountName="default"), "default")
    await node.start(second)
    new = (node.path(second) / "token").read_text()
    assert new != old
    assert cluster.api.identities.review(old, ()) is None
    assert cluster.api.identities.review(new, ()) is not None


async def test_a_pod_that_waits_for_a_config_map_goes_on_when_it_comes(node, cluster, pod_with, budget):
    pod = pod_with(CONFIG)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(node.start(pod))
        while len(node.journal.findings) < 3:
            node.journal.arrived.clear()
            await node.journal.arrived.wait()
        assert node.journal.findings[0].message == (
            'MountVolume.SetUp failed for volume "v" : configmap "cfg" not found'
        )
        assert not waiting.done()
        began = node.clock.monotonic()
        await cluster.put("cfg", x="1")
        await waiting
        assert node.clock.monotonic() - began < budget
    assert (node.path(pod) / "x").read_text() == "1"


async def test_a_deleted_config_map_leaves_the_files_and_a_new_one_replaces_them(node, cluster, pod_with, budget):
    await cluster.put("cfg", x="1")
    pod = pod_with(CONFIG)
    await node.start(pod)
    await cluster.client.delete(ConfigMap, "cfg", "default")
    await node.journal.arrived.wait()
    assert node.journal.findings[0].decision == "FailedMount"
    assert (node.path(pod) / "x").read_text() == "1"
    began = node.clock.monotonic()
    await cluster.put("cfg", x="2")
    assert await node.until_shown(node.path(pod), "x", "2") - began < budget


async def test_a_change_behind_a_cut_watch_arrives(node, cluster, pod_with):
    await cluster.put("cfg", x="1")
    pod = pod_with(CONFIG)
    await node.start(pod)
    cluster.api.faults.plan(Cut(), applies=lambda ask: ask.is_watch, times=1)
    await cluster.transport.reconnect()
    await node.change(x="2")
    await node.until_shown(node.path(pod), "x", "2")


async def test_a_reader_never_sees_a_half_state(node, cluster, pod_with, threads):
    await cluster.put("cfg", a="0", b="0")
    pod = pod_with(CONFIG)
    await node.start(pod)
    path, seen = node.path(pod), set()

    def read():
        directory = os.open(path / "..data", os.O_RDONLY | os.O_DIRECTORY)
        try:
            texts = []
            for name in ("a", "b"):
                with open(os.open(name, os.O_RDONLY, dir_fd=directory)) as file:
                    texts.append(file.read())
            assert texts[0] == texts[1]
            seen.add(texts[0])
        except FileNotFoundError:
            pass  # this state has been replaced meanwhile, as a whole
        finally:
            os.close(directory)

    for number in range(1, 11):
        await node.change(a=str(number), b=str(number))
        while str(number) not in seen:
            await threads.run(read)


@pytest.mark.parametrize("strategy", ["Cache", "Get"])
async def test_without_a_watch_the_next_look_finds_it(volume_node, cluster, pod_with, strategy):
    await cluster.put("cfg", x="1")
    node = volume_node(strategy)
    pod = pod_with(CONFIG)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(node.run())
        await node.start(pod)
        await node.change(x="2")
        node.clock.ahead = timedelta(minutes=2)  # more than the period and the cache's lifetime
        node.volumes.process(pod_with(CONFIG, labels={"app": "y"}))  # and so it looks
        await node.until_shown(node.path(pod), "x", "2")
        task.cancel()


async def test_an_agent_that_restarts_continues_where_it_was(volume_node, cluster, pod_with):
    await cluster.put("cfg", x="1")
    pod = pod_with(CONFIG)
    first = volume_node()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(first.run())
        await first.start(pod)
        task.cancel()
    path = first.path(pod)
    before = (path / "..data").readlink()
    second = volume_node()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(second.run())
        await second.start(pod)
        assert (path / "..data").readlink() == before  # the same content is not written again
        await second.change(x="2")
        await second.until_shown(path, "x", "2")
        await second.end("u")
        assert not path.exists()
        task.cancel()


async def test_an_agent_that_never_knew_the_pod_takes_its_volumes_down(volume_node, cluster, pod_with):
    await cluster.put("cfg", x="1")
    first, second = volume_node(), volume_node()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.run()) for each in (first, second)]
        await first.start(pod_with(CONFIG))
        await second.end("u")
        assert not first.path(pod_with(CONFIG)).exists()
        for task in tasks:
            task.cancel()
