import logging

import pytest
from aiohttp.http_exceptions import BadHttpMessage, InvalidHeader, LineTooLong

from klet.server.request_log import RequestErrorFilter


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        pytest.param(
            BadHttpMessage("Invalid header token:\n\n  b'Authorization : Bearer s3cret'\n      ^"),
            "Invalid header token",
            id="the line that aiohttp marks",
        ),
        pytest.param(InvalidHeader(b"Authorization s3cret"), "Invalid HTTP header", id="a header without a colon"),
        pytest.param(LineTooLong(b"Bearer s3cret", 10), "Got more than 10 bytes when reading", id="a line too long"),
        pytest.param(BadHttpMessage("Missing 'Host' header: s3cret"), "Missing", id="anything quoted"),
    ],
)
def test_a_request_that_is_no_http_is_logged_without_its_bytes(error, reported):
    record = logging.LogRecord("x", logging.ERROR, "", 0, "Error handling request", (), (type(error), error, None))
    assert RequestErrorFilter().filter(record)
    assert record.error == reported
    assert record.levelno == logging.WARNING
    assert "s3cret" not in logging.Formatter("%(message)s %(error)s").format(record)


def test_a_bug_keeps_its_trace():
    record = logging.LogRecord("x", logging.ERROR, "", 0, "Error", (), (ValueError, ValueError("bug"), None))
    assert RequestErrorFilter().filter(record)
    assert record.exc_info is not None
