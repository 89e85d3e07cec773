import pytest

from klet.model.causes import CauseId
from klet.model.pods import PodUID
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult
from klet.model.runtime import ContainerId
from klet.probes.results import ProbeChange, ProbeResults

UID = PodUID("uid-1")
KEY = ProbeKey(ContainerId("main-0"), ProbeKind.READINESS)
SUCCESS, FAILURE = ProbeResult.SUCCESS, ProbeResult.FAILURE


async def test_only_changed_results_are_published():
    results = ProbeResults()
    with results.changes() as changes:
        results.put(UID, KEY, FAILURE)
        results.put(UID, KEY, FAILURE)
        results.put(UID, KEY, SUCCESS, cause=CauseId("7"))
        assert changes.drain() == [ProbeChange(UID, KEY, FAILURE), ProbeChange(UID, KEY, SUCCESS, CauseId("7"))]


async def test_removing_notifies_nobody_and_the_next_result_is_new():
    results = ProbeResults()
    results.put(UID, KEY, SUCCESS)
    with results.changes() as changes:
        results.remove(KEY)
        assert (results.get(KEY), changes.drain()) == (None, [])
        results.put(UID, KEY, SUCCESS)
        assert changes.drain() == [ProbeChange(UID, KEY, SUCCESS)]


def test_the_view_follows_and_cannot_be_written():
    results = ProbeResults()
    view = results.view()
    results.put(UID, KEY, SUCCESS)
    assert dict(view) == {KEY: SUCCESS}
    with pytest.raises(TypeError):
        view[KEY] = FAILURE
