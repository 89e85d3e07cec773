from datetime import UTC, datetime

import pytest

from klet.cli.apply_plan import PodKey
from klet.cli.client import AgentUnavailable, CauseRecord, CauseSubject
from klet.cli.verdict import Broken, Done, Pending
from klet.cli.waiting import Awaited, PodWaiter, find_applied

WEB = Awaited(PodKey("default", "web"), "d1")


class Lister:
    """Gives one answer after the other; the last one stays."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def pods(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Passing:
    """A feed whose silence moves the clock."""

    def __init__(self, records=()):
        self.records = list(records)
        self.now = 0.0

    def monotonic(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
        return [self.records.pop(0)] if self.records else []


class Lines:
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    def waiting(self, text):
        pass


def waiter(pods, feed):
    lines = Lines()
    return PodWaiter(pods=pods, feed=feed, progress=lines, clock=feed), lines


@pytest.fixture
def web(build_pod):
    def build(digest="d1", **more):
        return build_pod(metadata={"annotations": {"klet.dev/manifest": digest}}, **more)

    return build


def test_it_waits_until_the_applied_manifest_is_ready_not_the_older_one(web):
    old = web(digest="d0", conditions={"Ready": "True"})
    new = web(phase="Pending")
    ready = web(conditions={"Ready": "True"})
    waiting, lines = waiter(Lister((old,), (old, new), (ready,)), Passing())
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Done("Ready")}
    assert lines.said == ["default/web: Ready"]


def test_a_pod_that_is_ready_for_an_instant_only_is_not_done(web):
    ready, crashed = web(conditions={"Ready": "True"}), web(phase="Failed", reason="Crashed")
    waiting, _ = waiter(Lister((ready,), (crashed,)), Passing())
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Broken("Crashed")}


def test_a_pod_that_has_succeeded_is_not_looked_at_again(web):
    feed = Passing()
    waiting, _ = waiter(Lister((web(phase="Succeeded"),)), feed)
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Done("Succeeded")}
    assert feed.now == 0


def test_time_is_up(web):
    feed = Passing()
    waiting, _ = waiter(Lister((web(phase="Pending"),)), feed)
    assert waiting.wait([WEB], seconds=3) == {WEB.key: Pending("its containers are being prepared")}
    assert feed.now == 3


def test_an_agent_that_restarts_is_waited_for(web):
    waiting, _ = waiter(Lister(AgentUnavailable("down"), (web(conditions={"Ready": "True"}),)), Passing())
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Done("Ready")}


def test_nothing_to_wait_for():
    waiting, lines = waiter(Lister(()), Passing())
    assert waiting.wait([], seconds=60) == {}
    assert lines.said == []


def test_decisions_of_the_agent_are_told(web):
    record = CauseRecord(
        at=datetime(2030, 1, 1, tzinfo=UTC),
        subject=CauseSubject(namespace="default", name="web-node", container="a"),
        decision="StartContainer",
        message="it is not there",
        measurements={"attempt": 0},
    )
    waiting, lines = waiter(Lister((web(phase="Pending"),), (web(conditions={"Ready": "True"}),)), Passing([record]))
    waiting.wait([WEB], seconds=60)
    assert "default/web-node: a: StartContainer: it is not there [attempt=0]" in lines.said


def test_find_applied_looks_at_namespace_name_and_content(web):
    assert find_applied([web()], WEB) is not None
    assert find_applied([web(digest="x")], WEB) is None
    assert find_applied([web(namespace="other")], WEB) is None
