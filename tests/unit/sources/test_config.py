import asyncio

import pytest

from klet.api.container import Container
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod, PodSpec
from klet.journal.memory import MemoryJournal
from klet.journal.records import CauseQuery
from klet.sources.config import PodConfig
from klet.sources.merge import PodChangeKind
from klet.testing.clock import ManualClock


def pod(uid: str, name: str = "", image: str = "a:1") -> Pod:
    return Pod(
        metadata=ObjectMeta(uid=uid, name=name or uid, namespace="ns"),
        spec=PodSpec(containers=(Container(name="app", image=image),)),
    )


@pytest.fixture
def journal():
    return MemoryJournal(clock=ManualClock())


@pytest.fixture
def config(journal):
    return PodConfig(sources=["file", "http"], recorder=journal, clock=ManualClock())


async def take(config) -> tuple[PodChangeKind, str, list[str]]:
    change = await config.next_change()
    return change.kind, change.source, [pod.metadata.uid for pod in change.pods]


async def test_changes_come_in_order(config):
    config.set_pods("file", (pod("p1"), pod("p2")))
    assert await take(config) == (PodChangeKind.ADD, "file", ["p1", "p2"])
    config.set_pods("file", (pod("p2", image="a:2"), pod("p3")))
    assert await take(config) == (PodChangeKind.REMOVE, "file", ["p1"])
    assert await take(config) == (PodChangeKind.ADD, "file", ["p3"])
    assert await take(config) == (PodChangeKind.UPDATE, "file", ["p2"])


async def test_a_slow_reader_sees_the_newest_state_only(config):
    config.set_pods("file", (pod("p1"),))
    config.set_pods("file", (pod("p2"),))
    assert await take(config) == (PodChangeKind.ADD, "file", ["p2"])


async def test_the_reader_waits_for_a_change(config):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(take(config))
        config.set_pods("http", ())
        assert await task == (PodChangeKind.ADD, "http", [])
        waiting = group.create_task(take(config))
        config.set_pods("http", ())
        config.set_pods("file", (pod("p1"),))
        assert await waiting == (PodChangeKind.ADD, "file", ["p1"])


async def test_sources_are_merged_apart(config):
    config.set_pods("file", (pod("p1"),))
    config.set_pods("http", (pod("p1"),))
    assert await take(config) == (PodChangeKind.ADD, "file", ["p1"])
    assert await take(config) == (PodChangeKind.ADD, "http", ["p1"])
    config.set_pods("http", ())
    assert await take(config) == (PodChangeKind.REMOVE, "http", ["p1"])


async def test_it_is_ready_when_each_source_was_read_and_handled(config):
    assert not config.all_ready()
    config.set_pods("file", ())
    config.mark_handled((await config.next_change()).source)
    assert not config.all_ready()
    config.set_pods("http", ())
    assert not config.all_ready()
    config.mark_handled((await config.next_change()).source)
    assert config.all_ready()


async def test_without_sources_it_is_ready(journal):
    assert PodConfig(sources=[], recorder=journal, clock=ManualClock()).all_ready()


async def test_a_duplicate_is_recorded_once(config, journal):
    twins = (pod("u1", "web"), pod("u2", "web"))
    config.set_pods("file", twins)
    await config.next_change()
    config.set_pods("file", (*twins, pod("p3")))
    await config.next_change()
    (cause,) = await journal.find(CauseQuery())
    assert cause.finding.decision == "FailedValidation"
    assert cause.finding.subject.uid == "u2"
