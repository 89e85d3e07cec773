"""When a worker looks at its pod again."""

from datetime import timedelta

import pytest

from klet.sync.requeue import StepFailure, compute_requeue
from klet.testing.loop import EPOCH

RESYNC = timedelta(seconds=60)
ERROR = StepFailure.ERROR
NETWORK = StepFailure.NETWORK_NOT_READY


@pytest.mark.parametrize(
    ("failure", "retry_in", "look_in", "shortest", "longest"),
    [
        pytest.param(None, None, None, 60, 90, id="nothing wrong: the usual pause"),
        pytest.param(ERROR, None, None, 10, 15, id="an error"),
        pytest.param(NETWORK, None, None, 1, 1.5, id="the network is not there yet"),
        pytest.param(NETWORK, 30, None, 1, 1.5, id="the network wins over a back-off"),
        pytest.param(ERROR, 20, None, 20, 20, id="the end of a back-off, as it was announced"),
        pytest.param(ERROR, -5, None, 0, 0, id="a back-off that is over"),
        pytest.param(ERROR, 3600, None, 60, 90, id="a back-off is no longer than the usual pause"),
        pytest.param(None, 20, None, 60, 90, id="a back-off without an error does not count"),
        pytest.param(None, None, 7, 7, 7, id="something that is due before"),
        pytest.param(None, None, 200, 60, 90, id="something that is due later"),
        pytest.param(ERROR, None, -3, 0, 0, id="something overdue is due now"),
    ],
)
def test_requeue(failure, retry_in, look_in, shortest, longest):
    def at(seconds):
        return None if seconds is None else EPOCH + timedelta(seconds=seconds)

    def after(chance):
        found = compute_requeue(
            failure, retry_at=at(retry_in), look_at=at(look_in), now=EPOCH, resync=RESYNC, chance=chance
        )
        return (found - EPOCH).total_seconds()

    assert (after(0.0), after(1.0)) == (shortest, longest)
