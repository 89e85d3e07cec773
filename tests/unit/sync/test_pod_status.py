"""Why containers could not be started, and for how long that is known."""

import pytest

from klet.model.pods import PodUID
from klet.model.runtime import StartFailure
from klet.sync.pod_status import MOST_FAILURES, StartFailures

ONE, TWO = PodUID("one"), PodUID("two")
PULL = StartFailure("ErrImagePull", "no such host")
CRASH = StartFailure("CrashLoopBackOff", "back-off 10s")


@pytest.mark.parametrize(
    ("failures", "started", "expected", "is_news"),
    [
        pytest.param({"a": CRASH}, (), {"a": CRASH, "b": PULL}, True, id="another reason"),
        pytest.param({"a": PULL}, (), {"a": PULL, "b": PULL}, False, id="the same reason"),
        pytest.param({"c": CRASH}, (), {"a": PULL, "b": PULL, "c": CRASH}, True, id="one more container"),
        pytest.param({}, (), {"a": PULL, "b": PULL}, False, id="what was not tried keeps its reason"),
        pytest.param({}, ("a",), {"b": PULL}, True, id="what was started has none any more"),
        pytest.param({}, ("c",), {"a": PULL, "b": PULL}, False, id="nor had it one before"),
        pytest.param({"b": CRASH}, ("a",), {"b": CRASH}, True, id="both"),
    ],
)
def test_what_became_of_starts(failures, started, expected, is_news):
    known = StartFailures()
    known.note(ONE, {"a": PULL, "b": PULL})
    known.note(TWO, {"a": PULL})
    assert known.note(ONE, failures, started=started) is is_news
    assert known.get(ONE) == expected
    assert known.get(TWO) == {"a": PULL}


def test_a_pod_that_is_gone():
    known = StartFailures()
    known.note(ONE, {"a": PULL})
    known.forget(ONE)
    known.forget(TWO)
    assert known.get(ONE) == {}


def test_of_too_many_the_least_used_is_forgotten():
    known = StartFailures(limit=2)
    known.note(ONE, {"a": PULL})
    known.note(TWO, {"a": PULL})
    known.get(ONE)
    known.note(TWO, {"b": CRASH})
    assert (known.get(ONE), known.get(TWO)) == ({"a": PULL}, {"b": CRASH})


def test_as_many_as_upstream_remembers():
    known = StartFailures()
    for number in range(MOST_FAILURES + 1):
        known.note(PodUID(f"{number}"), {"a": PULL})
    assert (known.get(PodUID("0")), known.get(PodUID("1")), MOST_FAILURES) == ({}, {"a": PULL}, 1000)
