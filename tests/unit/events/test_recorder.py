from klet.events.recorder import QUEUE, EventingRecorder
from klet.journal.memory import MemoryJournal
from klet.model.causes import Finding, Subject
from klet.testing.clock import ManualClock


def started(number):
    return Finding(subject=Subject(name="p", uid="u"), decider="test", decision="Started", message=str(number))


async def test_of_too_many_events_the_newest_are_told(caplog):
    clock = ManualClock()
    journal = MemoryJournal(clock=clock)
    recorder = EventingRecorder(inner=journal, clock=clock)
    for number in range(QUEUE + 2):
        recorder.record(started(number))
    recorder.record(Finding(subject=Subject(name="p"), decider="test", decision="NotForUsers"))
    told = [(await recorder.next())[0].message for _ in range(QUEUE)]
    assert told == [str(number) for number in range(2, QUEUE + 2)]
    assert caplog.messages == ["Event dropped: too many wait"] * 2
    assert len(journal.all()) == QUEUE + 3
