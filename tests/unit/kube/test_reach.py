import pytest

from klet.kube.reach import Reach


@pytest.mark.parametrize(
    ("code", "is_answer"),
    [(200, True), (201, True), (401, True), (403, True), (404, True), (429, True), (500, False), (503, False)],
)
def test_a_refusal_is_an_answer_and_a_failing_server_is_none(code, is_answer):
    reach = Reach()
    with reach.outcomes() as outcomes:
        reach.answered(code)
        assert outcomes.drain() == [is_answer]


def test_no_answer():
    reach = Reach()
    with reach.outcomes() as outcomes:
        reach.failed()
        assert outcomes.drain() == [False]
