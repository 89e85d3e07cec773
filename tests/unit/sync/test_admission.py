import pytest
from msgspec.structs import replace

from klet.allocation.book import AllocationBook
from klet.api.container import ResourceRequirements
from klet.api.container_status import ContainerStatus
from klet.api.pod import PodStatus
from klet.api.quantity import Quantity
from klet.journal.memory import MemoryJournal
from klet.model.allocation import desired_allocation
from klet.model.reasons import Reason
from klet.model.runtime import PodRuntimeStatus
from klet.model.verdicts import Admit, Preempt, Reject, Wait
from klet.pleg.cache import Reading, RuntimeCache
from klet.pods.store import PodStore
from klet.sync.admission import PodAdmission
from klet.sync.earlier_admissions import EarlierAdmissions
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage, WorkerState
from klet.testing.builders import make_container, make_pod, make_sandbox, with_resources
from klet.testing.clock import ManualClock

REFUSED = Reject(Reason.NODE_PORTS, "no port is free", {"hostPort": 80})
POD = make_pod()


class Voice:
    """Says the same of every pod, and notes whom it was asked about."""

    def __init__(self, verdict):
        self.verdict = verdict
        self.asked = []

    async def admit(self, pod, others):
        self.asked.append((pod.metadata.uid, [other.metadata.uid for other in others]))
        return self.verdict


class Bench:
    def __init__(self, *verdicts, remembered=(), in_runtime=(), declared=None):
        self.statuses = {uid: PodStatus(phase="Pending") for uid in remembered}
        self.voices = [Voice(verdict) for verdict in verdicts]
        self.pods, self.ledger, self.allocations = PodStore(), WorkerLedger(), AllocationBook()
        self.journal = MemoryJournal(clock=ManualClock())
        self.reported = []
        self.cache = RuntimeCache()
        for uid in in_runtime:
            self.cache.put(Reading(PodRuntimeStatus(uid=uid, sandboxes=(make_sandbox(ready=False),)), read_at=1.0))
        self.earlier = EarlierAdmissions(cache=self.cache, status_of=self.statuses.get)
        self.admission = PodAdmission(
            handlers=self.voices,
            declared_features=declared,
            pods=self.pods,
            ledger=self.ledger,
            allocations=self.allocations,
            earlier=self.earlier,
            report_rejection=lambda *rejection: self.reported.append(rejection),
            recorder=self.journal,
        )


async def test_the_first_that_does_not_admit_a_pod_has_the_last_word():
    bench = Bench(Admit(), REFUSED, Wait("never asked"))
    assert await bench.admission.admit(POD) == REFUSED
    assert [len(voice.asked) for voice in bench.voices] == [1, 1, 0]


async def test_a_pod_that_all_admit_is_taken_in():
    assert await Bench(Admit(), Admit()).admission.admit(POD) == Admit()


@pytest.mark.parametrize(
    ("pod", "remembered"),
    [
        pytest.param(POD, {"uid-1"}, id="an earlier run of the agent took it in"),
        pytest.param(replace(POD, status=PodStatus(phase="Failed")), set(), id="it is over"),
        pytest.param(make_pod(deleted=True), set(), id="it is being deleted"),
    ],
)
async def test_who_is_not_asked_about(pod, remembered):
    bench = Bench(REFUSED, remembered=remembered)
    assert await bench.admission.admit(pod) == Admit()
    assert bench.voices[0].asked == []


async def test_a_pod_is_not_asked_about_whose_status_was_lost_but_of_which_the_runtime_has_something():
    """As after a power cut, which the dead sandbox of the pod has survived."""
    bench = Bench(REFUSED, in_runtime={"uid-1"})
    assert await bench.admission.admit(POD) == Admit()


async def test_a_pod_is_asked_about_again_that_was_gone_in_between():
    bench = Bench(REFUSED, in_runtime={"uid-1"})
    assert bench.earlier.has("uid-1")
    bench.earlier.forget("uid-1")
    assert await bench.admission.admit(POD) == REFUSED


async def test_what_the_runtime_gets_later_does_not_count_as_admitted_before():
    bench = Bench(REFUSED)
    assert not bench.earlier.has("uid-1")
    bench.cache.put(Reading(PodRuntimeStatus(uid="uid-1", sandboxes=(make_sandbox(),)), read_at=2.0))
    assert await bench.admission.admit(POD) == REFUSED


VICTIM = make_pod(uid="victim", name="victim")
ROOM = Preempt((VICTIM,), "a critical pod needs the room", resource="cpu")


async def test_nobody_makes_room_for_a_pod_that_another_handler_rejects():
    bench = Bench(ROOM, REFUSED)
    assert await bench.admission.admit(POD) == REFUSED


async def test_room_is_made_once_all_others_admit_the_pod():
    bench = Bench(ROOM, Admit())
    assert await bench.admission.admit(POD) == ROOM
    assert [len(voice.asked) for voice in bench.voices] == [1, 1]
    assert bench.allocations.pods() == frozenset()


@pytest.mark.parametrize(
    ("stage", "phase", "counts"),
    [
        pytest.param(Stage.SYNCING, None, True, id="a new pod"),
        pytest.param(Stage.SYNCING, "Running", True, id="one that runs"),
        pytest.param(Stage.SYNCING, "Failed", False, id="one that has ended"),
        pytest.param(Stage.TERMINATING, "Failed", True, id="one that has ended and is still being stopped"),
        pytest.param(Stage.ADMITTING, None, False, id="one that waits for its admission"),
        pytest.param(Stage.ADMITTING, "Running", True, id="one that a previous run of the agent admitted"),
        pytest.param(Stage.ADMITTING, "Failed", False, id="one that a previous run of the agent rejected"),
        pytest.param(Stage.FINISHED, "Running", False, id="one that is finished"),
    ],
)
async def test_what_a_pod_holds(stage, phase, counts):
    bench = Bench(Admit())
    bench.pods.put(VICTIM)
    bench.ledger.put("victim", WorkerState(pod=VICTIM, stage=stage))
    if phase is not None:
        bench.statuses["victim"] = PodStatus(phase=phase)
    assert bench.admission.others_of(POD) == ((VICTIM,) if counts else ())


async def test_a_pod_does_not_count_beside_itself():
    bench = Bench()
    bench.pods.put(VICTIM)
    bench.ledger.put("victim", WorkerState(pod=VICTIM, stage=Stage.SYNCING))
    assert bench.admission.others_of(VICTIM) == ()


def test_a_pod_that_made_room_is_logged(caplog):
    caplog.set_level("INFO")
    Bench().admission.note_preempted(VICTIM, ROOM)
    [record] = [each for each in caplog.records if each.message == "Pod preempted"]
    assert (record.uid, record.resource) == ("victim", "cpu")


async def test_only_pods_that_hold_something_count():
    bench = Bench(Admit())
    for stage in Stage:
        other = make_pod(uid=stage)
        bench.pods.put(other)
        bench.ledger.put(stage, WorkerState(pod=other, stage=stage))
    bench.pods.put(make_pod(uid="without-worker"))
    await bench.admission.admit(POD)
    ((_, others),) = bench.voices[0].asked
    assert others == ["syncing", "terminating"]


def test_a_rejection_is_recorded_and_reported():
    bench = Bench()
    bench.admission.reject(POD, REFUSED, cause=None)
    (cause,) = bench.journal.all()
    assert (cause.finding.decision, cause.finding.message) == (Reason.NODE_PORTS, "no port is free")
    assert cause.finding.measurements == {"hostPort": 80}
    assert bench.reported == [(POD, REFUSED, cause.id)]


def test_a_wait_is_recorded():
    bench = Bench()
    bench.admission.note_wait(POD, Wait("the plugin is not there yet"), cause=None)
    (cause,) = bench.journal.all()
    assert (cause.finding.decision, cause.finding.next) == (Reason.ADMISSION_WAITS, "ask again")


SMALL, LARGE = ({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}} for cpu in ("1", "2"))


def sized(resources, *, generation=1, **options):
    pod = make_pod(with_resources(make_container("main"), **resources), **options)
    return replace(pod, metadata=replace(pod.metadata, generation=generation))


@pytest.mark.parametrize(
    ("verdict", "held"),
    [
        pytest.param(Admit(), {"uid-1"}, id="admitted"),
        pytest.param(REFUSED, set(), id="rejected"),
        pytest.param(Wait("for a plugin"), set(), id="it waits"),
    ],
)
async def test_a_pod_is_given_its_resources_when_it_is_admitted(verdict, held):
    bench = Bench(verdict)
    await bench.admission.admit(sized(SMALL))
    assert bench.allocations.pods() == held
    assert bench.journal.all() == ()


async def test_a_pod_keeps_them_when_its_spec_changes():
    bench = Bench(Admit())
    before, after = sized(SMALL), sized(LARGE, generation=2)
    await bench.admission.admit(before)
    bench.admission.note_change(after, before, cause=None)
    assert bench.allocations.of(after) == desired_allocation(before)
    (cause,) = bench.journal.all()
    assert (cause.finding.decision, cause.finding.next) == (
        Reason.RESIZE_PENDING,
        "keep the resources that it was admitted with",
    )
    assert cause.finding.message == "other resources are wanted for main; klet does not resize pods that run"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(sized(SMALL), sized(SMALL, generation=2), id="another part of the spec has changed"),
        pytest.param(sized(LARGE, generation=2), sized(LARGE, generation=2), id="it was recorded before"),
    ],
)
async def test_a_change_that_is_no_news(before, after):
    bench = Bench(Admit())
    await bench.admission.admit(sized(SMALL))
    bench.admission.note_change(after, before, cause=None)
    assert bench.journal.all() == ()


def test_a_pod_that_runs_keeps_what_an_earlier_run_gave_it():
    bench = Bench()
    small, pod = sized(SMALL).spec.containers[0].resources, sized(LARGE, generation=2)
    shown = ContainerStatus(name="main", allocated_resources=small.requests, resources=small)
    pod = replace(pod, status=PodStatus(phase="Running", container_statuses=(shown,)))
    bench.admission.take_over(pod, cause=None)
    assert bench.allocations.of(pod).of("main") == small
    assert [cause.finding.decision for cause in bench.journal.all()] == [Reason.RESIZE_PENDING]


async def test_a_static_pod_has_what_its_manifest_says_by_now():
    bench = Bench(Admit())
    before, after = sized(SMALL, source="file"), sized(LARGE, source="file")
    await bench.admission.admit(before)
    bench.admission.note_change(after, before, cause=None)
    assert bench.allocations.of(after) == desired_allocation(after)
    assert bench.journal.all() == ()


@pytest.mark.parametrize(
    ("declared", "warned"),
    [
        pytest.param(None, False, id="the node declares nothing"),
        pytest.param((), True, id="the node does not declare it"),
        pytest.param(("InPlacePodLevelResourcesVerticalScaling",), False, id="the node declares it"),
    ],
)
def test_a_change_that_needs_a_feature_of_the_node(declared, warned):
    bench = Bench(declared=declared)
    after = replace(POD, spec=replace(POD.spec, resources=ResourceRequirements(limits={"cpu": Quantity.parse("1")})))
    bench.admission.note_change(after, POD, cause=None)
    expected = ["Pod requires node features that are not available: InPlacePodLevelResourcesVerticalScaling"]
    assert [cause.finding.message for cause in bench.journal.all()] == (expected if warned else [])


def test_an_update_without_a_change_is_not_checked():
    bench = Bench(declared=())
    bench.admission.note_change(POD, POD, cause=None)
    assert bench.journal.all() == ()
