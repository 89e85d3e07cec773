"""Pods of the API server: those whose names cannot become paths are left out, and the others go on."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import asyncio

import pytest
from msgspec.structs import replace

from klet.aio.broadcast import DEFAULT_LIMIT, Broadcast
from klet.api.container import EphemeralContainer
from klet.api.volume import Volume
from klet.journal.memory import MemoryJournal
from klet.kube.informer import ObjectKey
from klet.sources.api import ApiSource, find_bad_name
from klet.testing.builders import make_container, make_pod
from klet.testing.clock import ManualClock

GOOD = make_pod("main", name="good", uid="u-1")


class Followed:
    """The API server's pods, as the test sets them; also its node."""

    def __init__(self):
        self.pods = ()
        self.sender = Broadcast[ObjectKey]()

    def all(self):
        return self.pods

    async def until_synced(self):
        pass

    def changes(self):
        return self.sender.subscribe()


class Sink:
    def __init__(self):
        self.uids = []

    def set_pods(self, source, pods):
        self.uids.append([pod.metadata.uid for pod in pods])


async def test_a_pod_with_a_bad_uid_is_rejected_once_and_others_go_on():
    followed, sink, journal = Followed(), Sink(), MemoryJournal(clock=ManualClock())
    bad = make_pod("main", name="bad", uid="..")
    followed.pods = (bad, GOOD)
    source = ApiSource(node=followed, pods=followed, sink=sink, recorder=journal)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(source.run())
        for pods in [
            (bad, GOOD),
            (replace(bad), GOOD),
            (replace(bad, metadata=replace(bad.metadata, uid="u-2")), GOOD),
        ]:
            followed.pods = pods
            followed.sender.send(ObjectKey("default", "bad"))
            for _ in range(5):
                await asyncio.sleep(0)
        task.cancel()
    assert sink.uids[0] == ["u-1"]
    assert sink.uids[-1] == ["u-2", "u-1"]
    [record] = journal.all()
    assert record.finding.decision == "FailedValidation"
    assert record.finding.message.startswith(
        "Error validating pod from api: metadata.uid: Invalid value: '..': must be"
    )


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\0"])
@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("metadata.name", lambda pod, name: replace(pod, metadata=replace(pod.metadata, name=name))),
        ("metadata.namespace", lambda pod, name: replace(pod, metadata=replace(pod.metadata, namespace=name))),
        (
            "spec.volumes[0].name",
            lambda pod, name: replace(pod, spec=replace(pod.spec, volumes=(Volume(name=name),))),
        ),
        (
            "spec.containers[0].name",
            lambda pod, name: replace(pod, spec=replace(pod.spec, containers=(make_container(name),))),
        ),
        (
            "spec.initContainers[0].name",
            lambda pod, name: replace(pod, spec=replace(pod.spec, init_containers=(make_container(name),))),
        ),
        (
            "spec.ephemeralContainers[0].name",
            lambda pod, name: replace(
                pod, spec=replace(pod.spec, ephemeral_containers=(EphemeralContainer(name=name),))
            ),
        ),
    ],
)
def test_names_that_are_no_names_of_files(field, change, name):
    assert find_bad_name(change(GOOD, name)).startswith(f"{field}: Invalid value: ")


def test_good_names_and_the_length_of_a_message():
    assert find_bad_name(GOOD) == ""
    assert len(find_bad_name(make_pod("main", uid="x" * 1_000_000))) < 300


async def test_after_dropped_changes_all_pods_are_sent_once():
    followed, sink = Followed(), Sink()
    source = ApiSource(node=followed, pods=followed, sink=sink, recorder=MemoryJournal(clock=ManualClock()))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(source.run())
        await asyncio.sleep(0)
        followed.pods = (GOOD,)
        for number in range(DEFAULT_LIMIT + 1):
            followed.sender.send(ObjectKey("default", f"pod-{number}"))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
    assert sink.uids == [[], ["u-1"]]
