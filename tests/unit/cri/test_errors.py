from datetime import timedelta

import grpc
import pytest

from klet.cri.errors import (
    BadAnswer,
    Code,
    CriAlreadyExists,
    CriError,
    CriNotFound,
    DeadlineExceeded,
    ExecTimeout,
    InvalidRuntime,
    PullFailure,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
    error_for,
    read_pull_failure,
)
from klet.model.foreign_text import LONGEST_OUTPUT


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.UNAVAILABLE, Unavailable),
        (Code.NOT_FOUND, CriNotFound),
        (Code.ALREADY_EXISTS, CriAlreadyExists),
        (Code.RESOURCE_EXHAUSTED, ResourceExhausted),
        (Code.UNIMPLEMENTED, Unimplemented),
        (Code.DEADLINE_EXCEEDED, DeadlineExceeded),
        (Code.UNKNOWN, CriError),
        (Code.INTERNAL, CriError),
    ],
    ids=str,
)
def test_each_code_has_its_class(code, kind):
    error = error_for(code, "why")
    assert type(error) is kind
    assert (error.code, error.message) == (code, "why")


def test_the_text_is_the_one_of_events():
    error = error_for(Code.NOT_FOUND, 'an error occurred when try to find container "x": not found')
    assert str(error) == (
        'rpc error: code = NotFound desc = an error occurred when try to find container "x": not found'
    )


def test_every_status_code_has_a_name():
    assert {code.name for code in grpc.StatusCode} == {code.name for code in Code}


@pytest.mark.parametrize(
    ("command", "limit", "text"),
    [
        pytest.param(["cat", "/ok"], 1, 'command timed out: "cat /ok" timed out after 1s', id="seconds"),
        pytest.param(["x"], 60, 'command timed out: "x" timed out after 1m0s', id="a minute"),
        pytest.param(["x"], 3605, 'command timed out: "x" timed out after 1h0m5s', id="an hour and a bit"),
        pytest.param(["sh", "-c", 'a "b"'], 2, 'command timed out: "sh -c a \\"b\\"" timed out after 2s', id="quotes"),
        pytest.param(["a\\b"], 2, 'command timed out: "a\\\\b" timed out after 2s', id="a backslash"),
    ],
)
def test_exec_timeout(command, limit, text):
    error = ExecTimeout(command, timedelta(seconds=limit))
    assert str(error) == text
    assert isinstance(error, DeadlineExceeded)


def test_bad_answers_are_reported_without_a_code():
    assert str(BadAnswer("status.Id is not set")) == "status.Id is not set"


def test_an_endpoint_without_the_cri():
    error = InvalidRuntime("runtime", "unix:///x.sock", error_for(Code.UNIMPLEMENTED, "unknown service"))
    assert str(error) == (
        'validate CRI v1 runtime API for endpoint "unix:///x.sock": '
        "rpc error: code = Unimplemented desc = unknown service"
    )
    assert error.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(error_for(Code.UNKNOWN, "é" * 1_000_000), id="an error"),
        pytest.param(error_for(Code.NOT_FOUND, "x" * 1_000_000), id="an error of a class of its own"),
        pytest.param(ExecTimeout(["x" * 1_000_000, '"' * 1_000_000], timedelta(seconds=1)), id="a timeout"),
        pytest.param(BadAnswer("x" * 1_000_000), id="a bad answer"),
        pytest.param(InvalidRuntime("runtime", "unix:///x", BadAnswer("x" * 1_000_000)), id="another protocol"),
    ],
)
def test_no_text_of_a_runtime_is_quoted_whole(error):
    assert len(error.message.encode()) <= LONGEST_OUTPUT
    assert len(str(error).encode()) <= LONGEST_OUTPUT + 100
    assert len(repr(error)) <= LONGEST_OUTPUT + 100


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        pytest.param("RegistryUnavailable: 503", PullFailure.REGISTRY_UNAVAILABLE, id="no registry"),
        pytest.param("RegistryUnavailable", PullFailure.REGISTRY_UNAVAILABLE, id="the word alone"),
        pytest.param("SignatureValidationFailed: x", PullFailure.SIGNATURE_VALIDATION_FAILED, id="a bad signature"),
        pytest.param("pull: RegistryUnavailable", None, id="the word does not come first"),
        pytest.param("no such host", None, id="another failure"),
    ],
)
def test_a_failed_pull_names_its_kind_first(message, failure):
    assert read_pull_failure(message) is failure
