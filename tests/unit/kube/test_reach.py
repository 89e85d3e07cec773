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
        reach.failed("refused")
        assert outcomes.drain() == [False]


@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        pytest.param(200, "", id="an answer"),
        pytest.param(403, "", id="a refusal"),
        pytest.param(500, "", id="a request that the server fails at"),
        pytest.param(503, "it answers 503", id="a balancer without a server"),
    ],
)
def test_what_says_that_nobody_is_there(code, trouble):
    reach = Reach()
    with reach.troubles() as troubles:
        reach.answered(code)
        reach.failed("refused")
        assert troubles.drain() == [trouble, "refused"]
