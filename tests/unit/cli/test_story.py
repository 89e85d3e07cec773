"""What `klet up` shows of the agent's decisions."""

from datetime import UTC, datetime

import pytest

from klet.api.klet_v1 import CauseRecord, CauseSubject
from klet.cli.story import TROUBLES, brief_line
from klet.model.reasons import Reason


def record(decision: str, message: str = "m", container: str = "") -> CauseRecord:
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
    assert brief_line(record(decision, "Pulling it", "a")) == line


def test_every_failure_is_a_trouble_except_that_of_a_start():
    failures = {reason for reason in Reason if reason.name.startswith("FAILED_")}
    assert failures < TROUBLES
    assert Reason.FAILED not in TROUBLES
