"""The state of a PLEG, and short ways to give it inputs as the PLEG does."""

from datetime import timedelta

import pytest

from klet.cri.events import RuntimeEvent
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.pleg.cache import RuntimeCache
from klet.pleg.state import PlegState, ReadAgain
from klet.testing.builders import NOW

UID = PodUID("uid-1")


class Play:
    """The state and the cache that it reads. Relists every second, beside a stream every minute."""

    def __init__(self):
        self.cache = RuntimeCache()
        self.state = PlegState(cache=self.cache, relist=timedelta(seconds=1), safety_relist=timedelta(seconds=60))

    def event(self, kind, member="c-0", *, sandbox=None, now=10.0):
        return self.state.note_event(RuntimeEvent(kind, member, sandbox, NOW), now=now)

    def relist(self, *pods, now=1.0):
        """A whole relist; the first one fills the cache."""
        relist = self.state.begin_relist(at=NOW, now=now)
        listed = {pod.uid: pod for pod in pods}
        found = self.state.end_relist(relist, listed, now=now)
        self.cache.forget_empty(read_before=relist.began, keep=listed.keys())
        for uid in found.fill:
            self.read(listed[uid], now=now)
        self.state.complete_relist(relist)
        return found

    def read(self, outcome, *, now=2.0):
        """A whole read of a pod that ends with a status or an error."""
        uid = UID if isinstance(outcome, KletError) else outcome.uid
        return self.finish(self.state.begin_read(uid, quietly=False, now=now), outcome).reading

    def finish(self, read, outcome):
        """The end of a read that has begun."""
        if isinstance(outcome, KletError):
            update = self.state.fail_read(read, outcome)
        else:
            update = self.state.end_read(read, outcome)
        self.cache.put(update.reading, quietly=update.quietly)
        self.state.leave_read(read)
        return update

    def confirm(self, *outcomes, now=10.0):
        """A pod's turn in the queue of reads: as many as there are outcomes. The last verdict."""
        confirmation = self.state.begin_confirmation(UID, now=now)
        verdict = None
        for outcome in outcomes:
            verdict = self.look(confirmation, outcome, now=now)
            now += verdict.after.total_seconds() if isinstance(verdict, ReadAgain) else 0.0
        return verdict

    def look(self, confirmation, outcome, *, now):
        """One of these reads, compared with what events said."""
        self.state.next_read(confirmation, now=now)
        return self.state.judge(confirmation, self.read(outcome, now=now), now=now)


@pytest.fixture
def play():
    """A PLEG that has not relisted yet."""
    return Play()


@pytest.fixture
def relisted(play):
    """A PLEG after its first relist at second 1, which listed these pods."""

    def make(*pods):
        play.relist(*pods)
        return play

    return make
