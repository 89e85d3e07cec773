from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from klet.api.klet_v1 import CauseRecord, CauseSubject, PullEntry, Why
from klet.api.pod import PodCondition
from klet.cli.apply_plan import PodKey
from klet.cli.client import AgentError, AgentUnavailable
from klet.cli.verdict import Broken, Done, Pending
from klet.cli.waiting import TROUBLES, AppliedPod, PodWaiter, brief_line, find_applied
from klet.model.reasons import Reason

WEB = AppliedPod(PodKey("default", "web"), "d1")


class Lister:
    """Gives one answer after the other; the last one stays."""

    def __init__(self, *answers, why=(), pulling=((),)):
        self.answers = list(answers)
        self.pulling = list(pulling)
        self.causes = why
        self.asked = []

    def why(self, namespace, name):
        self.asked.append((namespace, name))
        if isinstance(self.causes, Exception):
            raise self.causes
        return self.causes

    def pulls(self):
        return self.pulling.pop(0) if len(self.pulling) > 1 else self.pulling[0]

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
        self.said, self.waits, self.milestones = [], [], []

    def show(self, text):
        self.said.append(text)

    def error(self, text):
        self.said.append(f"error: {text}")

    def waiting(self, text):
        self.waits.append(text)

    def milestone(self, text):
        self.milestones.append(text)


def waiter(pods, feed, *, is_verbose=False):
    lines = Lines()
    waiting = PodWaiter(pods=pods, feed=feed, progress=lines, clock=feed, node_name="node", is_verbose=is_verbose)
    return waiting, lines


def record(decision, name="web-node", container="a", **more):
    subject = CauseSubject(namespace="default", name=name, container=container)
    return CauseRecord(at=datetime(2030, 1, 1, tzinfo=UTC), subject=subject, decision=decision, **more)


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
    assert lines.said == ["web: Ready"]


def test_a_pod_that_is_ready_for_an_instant_only_is_not_done(web):
    ready, crashed = web(conditions={"Ready": "True"}), web(phase="Failed", reason="Crashed")
    waiting, lines = waiter(Lister((ready,), (crashed,)), Passing())
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Broken("Crashed", is_vague=True)}
    assert lines.said == ["error: web: failed: Crashed"]


def test_a_restart_while_it_settles_begins_the_wait_again(web, build_pod):
    def ready(restarts):
        status = build_pod.status("a", {"running": {}}, ready=True, restartCount=restarts)
        return (web(containers=[status], conditions={"Ready": "True"}),)

    feed = Passing()
    waiting, lines = waiter(Lister(ready(0), ready(0), ready(1)), feed)
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Done("Ready")}
    assert feed.now == 2
    assert lines.said == ["web: Ready"]


def test_a_crash_loop_is_reported_once_however_often_it_turns(web, build_pod):
    def state(is_ready, **state):
        status = build_pod.status(
            "a", state, ready=is_ready, lastState={"terminated": {"exitCode": 3, "reason": "Error"}}
        )
        return (web(containers=[status], conditions={"Ready": str(is_ready)}),)

    def waits(seconds):
        return state(False, waiting={"reason": "CrashLoopBackOff", "message": f"back-off {seconds}s"})

    runs = state(True, running={})
    feed = Passing()
    waiting, lines = waiter(Lister(waits(10), runs, waits(20), runs, waits(40)), feed)
    waiting.wait([WEB], seconds=3)
    assert lines.said == ['web: container "a" waits: CrashLoopBackOff; last time it ended with exit code 3']


def test_a_pod_that_is_no_longer_ready_is_reported_and_so_is_its_return(web, build_pod):
    status = build_pod.status("a", {"running": {}})
    ready, unready = (web(conditions={"Ready": "True"}),), (web(containers=[status]),)
    waiting, lines = waiter(Lister(ready), Passing())
    waiting.wait([WEB], seconds=60)
    waiting, again = waiter(Lister(ready, ready, ready, unready, unready, ready), feed := Passing())
    for _ in range(9):
        waiting.look([WEB])
        feed.wait(0.5)
    assert lines.said == ["web: Ready"]
    assert again.said == [
        "web: Ready",
        'web: not Ready any more: container "a" runs and is not ready yet',
        "web: Ready",
    ]


def test_a_pod_that_another_command_took_away(web):
    waiting, lines = waiter(Lister((web(conditions={"Ready": "True"}),)), Passing())
    waiting.wait([WEB], seconds=60)
    waiting._pods = Lister(())
    waiting.look([WEB])
    waiting.look([WEB])
    assert lines.said == ["web: Ready", "web: removed or replaced by another command"]


def test_a_pod_that_has_succeeded_is_not_looked_at_again(web):
    feed = Passing()
    waiting, _ = waiter(Lister((web(phase="Succeeded"),)), feed)
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Done("Succeeded")}
    assert feed.now == 0


def test_time_is_up(web):
    feed = Passing()
    waiting, _ = waiter(Lister((web(phase="Pending"),)), feed)
    assert waiting.wait([WEB], seconds=3) == {WEB.key: Pending("its containers are being prepared", is_vague=True)}
    assert feed.now == 3


def test_an_agent_that_restarts_is_waited_for(web):
    waiting, _ = waiter(Lister(AgentUnavailable("down"), (web(conditions={"Ready": "True"}),)), Passing())
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Done("Ready")}


def test_nothing_to_wait_for():
    waiting, lines = waiter(Lister(()), Passing())
    assert waiting.wait([], seconds=60) == {}
    assert lines.said == []


RECORDS = [
    record("PodAdded", container="", message="new"),
    record("Pulling", message='Pulling image "i"'),
    record("Pulling", message='Pulling image "i"'),
    record("FailedCreatePodSandBox", container="", message="no network"),
    record("Failed", message="the status shows this"),
    record("Started", measurements={"attempt": 0}),
    record("Started", name="other-node"),
    CauseRecord(at=datetime(2030, 1, 1, tzinfo=UTC), decision="AgentStarted"),
]


@pytest.mark.parametrize(
    ("is_verbose", "expected"),
    [
        pytest.param(
            False,
            [
                'web: container "a": pulling image "i"',
                "web: FailedCreatePodSandBox: no network",
                'web: container "a" started',
                "web: Ready",
            ],
            id="what a user waits for, once, of the pods that were given",
        ),
        pytest.param(
            True,
            [
                "web: PodAdded: new",
                'web: a: Pulling: Pulling image "i"',
                'web: a: Pulling: Pulling image "i"',
                "web: FailedCreatePodSandBox: no network",
                "web: a: Failed: the status shows this",
                "web: a: Started [attempt=0]",
                "other: a: Started",
                "web: Ready",
            ],
            id="verbosely all of it",
        ),
    ],
)
def test_decisions_of_the_agent_are_reported(web, is_verbose, expected):
    feed = Passing(RECORDS)
    answers = [(web(phase="Pending"),)] * len(RECORDS)
    waiting, lines = waiter(Lister(*answers, (web(conditions={"Ready": "True"}),)), feed, is_verbose=is_verbose)
    waiting.wait([WEB], seconds=60)
    assert lines.said == expected


def test_find_applied_looks_at_namespace_name_and_content(web):
    assert find_applied([web()], WEB) is not None
    assert find_applied([web(digest="x")], WEB) is None
    assert find_applied([web(namespace="other")], WEB) is None


NOT_MOUNTED = Why(
    kind="trouble", reason="FailedMount", message='volume "cfg" cannot be set up: configmap "cfg" not found'
)


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        pytest.param(
            (NOT_MOUNTED, Why(kind="past", reason="Exited")),
            Pending('FailedMount: volume "cfg" cannot be set up: configmap "cfg" not found', is_trouble=True),
            id="what klet explain names first",
        ),
        pytest.param(
            (Why(kind="progress", reason="CreateSandbox", message="the sandbox is being created"),),
            Pending("CreateSandbox: the sandbox is being created"),
            id="what is under way",
        ),
        pytest.param((), Pending("Ready is False: ContainersNotReady", is_vague=True), id="no cause is known"),
        pytest.param(
            AgentError(404, "nothing is recorded"),
            Pending("Ready is False: ContainersNotReady", is_vague=True),
            id="the agent does not know it",
        ),
    ],
)
def test_the_last_word_names_the_cause(web, why, expected):
    pod = web(phase="Pending")
    not_ready = PodCondition(type="Ready", status="False", reason="ContainersNotReady")
    pod = replace(pod, status=replace(pod.status, conditions=(not_ready,)))
    lister = Lister((pod,), why=why)
    waiting, _ = waiter(lister, Passing())
    assert waiting.wait([WEB], seconds=1) == {WEB.key: expected}
    assert lister.asked == [("default", "web-node")]


def test_a_rejected_pod_is_shown_with_the_cause(web):
    why = Why(kind="trouble", reason="OutOfcpu", message="the pod requests 3 of cpu (Pod was rejected: …)")
    rejected = web(phase="Failed", reason="OutOfcpu")
    waiting, lines = waiter(Lister((rejected,), why=(why,)), Passing())
    expected = "OutOfcpu: the pod requests 3 of cpu (Pod was rejected: …)"
    assert waiting.wait([WEB], seconds=60) == {WEB.key: Broken(expected)}
    assert lines.said == [f"error: web: failed: {expected}"]


def test_what_the_status_says_of_a_container_is_not_asked_for(web, build_pod):
    failing = build_pod.status("a", {"waiting": {"reason": "ErrImagePull", "message": "no such image"}})
    lister = Lister((web(phase="Pending", containers=[failing]),), why=(NOT_MOUNTED,))
    waiting, _ = waiter(lister, Passing())
    assert waiting.wait([WEB], seconds=1) == {
        WEB.key: Pending('container "a" waits: ErrImagePull: no such image', is_trouble=True)
    }
    assert lister.asked == []


def decided(decision: str, message: str = "m", container: str = "") -> CauseRecord:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return CauseRecord(at=at, decision=decision, message=message, subject=CauseSubject(container=container))


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        pytest.param("Pulling", 'container "a": pulling it', id="a pull"),
        pytest.param("Started", 'container "a" started', id="a start"),
        pytest.param("Unhealthy", "a: Unhealthy: Pulling it", id="a trouble"),
        pytest.param("FailedMount", "a: FailedMount: Pulling it", id="a failure"),
        pytest.param("Failed", None, id="a failed start is in the status"),
        pytest.param("Created", None, id="a step on the way"),
        pytest.param("FailedToTeleport", None, id="a word of another version"),
    ],
)
def test_a_decision_in_a_few_words(decision, line):
    assert brief_line(decided(decision, "Pulling it", "a")) == line


def test_every_failure_is_a_trouble_except_that_of_a_start():
    failures = {reason for reason in Reason if reason.name.startswith("FAILED_")}
    assert failures < TROUBLES
    assert Reason.FAILED not in TROUBLES


def pull(*, elapsed, fetched=None, name="web-node"):
    known = {} if fetched is None else {"stage": "fetching", "fetched_bytes": fetched, "total_bytes": 100}
    return PullEntry(
        image="app:1",
        namespace="default",
        pod=name,
        since=datetime(2030, 1, 1, tzinfo=UTC),
        elapsed_seconds=elapsed,
        summary=f"summary of {fetched}",
        **known,
    )


def test_what_is_waited_for_names_the_pull_and_how_far_it_is(web):
    pending = web(phase="Pending")
    pending = replace(pending, metadata=replace(pending.metadata, name="web-node"))
    lister = Lister((pending,), pulling=[(pull(elapsed=1, fetched=5), pull(elapsed=1, name="other")), ()])
    waiting, lines = waiter(lister, Passing())
    waiting.wait([WEB], seconds=0.9)
    assert lines.waits == ["Waiting for web (pulling app:1: summary of 5)", "Waiting for web", ""]
    assert lines.milestones == []


def test_a_long_pull_is_a_line_for_each_quarter_where_there_is_no_terminal(web):
    pending = web(phase="Pending")
    pending = replace(pending, metadata=replace(pending.metadata, name="web-node"))
    looks = [(pull(elapsed=second, fetched=2 * second),) for second in range(5, 50)]
    waiting, lines = waiter(Lister((pending,), pulling=looks), Passing())
    waiting.wait([WEB], seconds=0.5 * 44.5)
    assert lines.milestones == [f"web: pulling app:1: summary of {fetched}" for fetched in (20, 26, 50, 76)]


def test_a_long_pull_of_which_nothing_is_known_is_a_line_each_half_minute(web):
    pending = web(phase="Pending")
    pending = replace(pending, metadata=replace(pending.metadata, name="web-node"))
    looks = [(pull(elapsed=second),) for second in range(5, 65)]
    waiting, lines = waiter(Lister((pending,), pulling=looks), Passing())
    waiting.wait([WEB], seconds=0.5 * 59.5)
    assert len(lines.milestones) == 3


@pytest.mark.parametrize("failure", [AgentUnavailable("down"), AgentError(500, "broken")])
def test_pulls_that_cannot_be_read_are_left_out(web, failure):
    class Failing(Lister):
        def pulls(self):
            raise failure

    waiting, lines = waiter(Failing((web(phase="Pending"),)), Passing())
    waiting.wait([WEB], seconds=0.4)
    assert lines.waits == ["Waiting for web", ""]
