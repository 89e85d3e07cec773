import pytest
from msgspec.structs import replace

from klet.admission.verdicts import Admit, Reject, Wait
from klet.api.pod import PodStatus
from klet.journal.memory import MemoryJournal
from klet.model.reasons import Reason
from klet.pods.store import PodStore
from klet.sync.admission import PodAdmission
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage, WorkerState
from klet.testing.builders import make_pod
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
    def __init__(self, *verdicts, remembered=()):
        self.voices = [Voice(verdict) for verdict in verdicts]
        self.pods, self.ledger = PodStore(), WorkerLedger()
        self.journal = MemoryJournal(clock=ManualClock())
        self.reported = []
        self.admission = PodAdmission(
            handlers=self.voices,
            pods=self.pods,
            ledger=self.ledger,
            remembers=lambda uid: uid in remembered,
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
