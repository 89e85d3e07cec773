"""Which answers of probes are news, and who hears of them."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import asyncio

import pytest

from klet.aio.broadcast import Broadcast, Subscription
from klet.allocation.book import AllocationBook
from klet.journal.memory import MemoryJournal
from klet.model.pods import PodUID
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult
from klet.model.runtime import ContainerId
from klet.pods.store import PodStore
from klet.probes.results import ProbeChange, ProbeResults
from klet.status.board import StatusBoard
from klet.sync.pod_status import PodStatuses, StartFailures, StatusFacts
from klet.sync.probe_sync import ProbeSync, is_news
from klet.sync.worker_state import PodUpdate
from klet.testing.builders import make_pod
from klet.testing.clock import START, ManualClock

LIMIT = 4


class Listeners:
    """Results that drop what nobody takes in time, and workers that note which pods they are notified of."""

    def __init__(self) -> None:
        self.news = Broadcast[ProbeChange]()
        self.notified: list[str] = []

    def changes(self) -> Subscription[ProbeChange]:
        return self.news.subscribe(limit=LIMIT)

    def workers_of(self, uid: PodUID) -> frozenset[tuple[str, ProbeKind]]:
        return frozenset()

    def update(self, update: PodUpdate) -> None:
        self.notified.append(f"update {update.pod.metadata.uid}")

    def wake(self, uid: PodUID) -> None:
        self.notified.append(f"wake {uid}")


def change(uid: str, kind: ProbeKind = ProbeKind.READINESS, result: ProbeResult = ProbeResult.SUCCESS) -> ProbeChange:
    return ProbeChange(PodUID(uid), ProbeKey(ContainerId("c"), kind), result, None)


@pytest.mark.parametrize("kind", list(ProbeKind))
@pytest.mark.parametrize("result", [ProbeResult.SUCCESS, ProbeResult.FAILURE])
def test_of_liveness_only_a_failure_is_news(kind, result):
    assert is_news(change("u", kind, result)) is (kind is not ProbeKind.LIVENESS or result is ProbeResult.FAILURE)


@pytest.mark.parametrize(
    ("reported", "notified"),
    [
        pytest.param(["u-0"], ["update u-0"], id="the worker of the pod is notified"),
        pytest.param(["u-9"], [], id="of a pod that is gone nobody does"),
        pytest.param(
            ["u-0"] * (LIMIT + 1), [*["wake u-0", "wake u-1"], *["update u-0"] * LIMIT],
            id="when something was lost every worker looks",
        ),
    ],
)  # fmt: skip
async def test_who_is_notified(reported, notified):
    clock, listeners, pods = ManualClock(), Listeners(), PodStore()
    for number in range(2):
        pods.put(make_pod("a", name=f"pod-{number}", uid=f"u-{number}"))
    statuses = PodStatuses(
        board=StatusBoard(clock=clock),
        allocations=AllocationBook(),
        failures=StartFailures(),
        probes=ProbeResults(),
        probers=listeners,
        recorder=MemoryJournal(clock=clock),
        facts=StatusFacts("containerd", START),
        clock=clock,
    )
    news = ProbeSync(probes=listeners, pods=pods, statuses=statuses, workers=listeners)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(news.run())
        await asyncio.sleep(0)
        for uid in reported:
            listeners.news.send(change(uid))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
    assert listeners.notified == notified
