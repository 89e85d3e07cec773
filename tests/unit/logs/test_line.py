import pytest

from klet.logs.line import LogError, LogStream, detect_parser, parse_cri_line, parse_docker_line

NOON = 1_700_000_000 * 1_000_000_000
"""2023-11-14T22:13:20Z."""


def shown(parsed):
    return parsed and (parsed.nanoseconds, parsed.stamp, parsed.stream, parsed.content)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            b"2023-11-14T22:13:20.000000001Z stdout F hello",
            (NOON + 1, b"2023-11-14T22:13:20.000000001Z", LogStream.STDOUT, b"hello\n"),
            id="a full line ends in a newline",
        ),
        pytest.param(
            b"2023-11-14T22:13:20Z stderr P half",
            (NOON, b"2023-11-14T22:13:20.000000000Z", LogStream.STDERR, b"half"),
            id="a partial line drops its newline, and no fraction is a zero fraction",
        ),
        pytest.param(
            b"2023-11-14T22:13:20.5Z stdout P:x:y half",
            (NOON + 500_000_000, b"2023-11-14T22:13:20.500000000Z", LogStream.STDOUT, b"half"),
            id="only the first tag counts",
        ),
        pytest.param(
            b"2023-11-14T22:13:20.5Z stdout F:P whole",
            (NOON + 500_000_000, b"2023-11-14T22:13:20.500000000Z", LogStream.STDOUT, b"whole\n"),
            id="a later P does not make a part",
        ),
        pytest.param(
            b"2023-11-14T23:13:20.123456789987+01:00 stdout F x",
            (NOON + 123_456_789, b"2023-11-14T23:13:20.123456789+01:00", LogStream.STDOUT, b"x\n"),
            id="digits beyond the ninth are cut and the zone is kept",
        ),
        pytest.param(
            b"2023-11-14T22:13:20.12+00:00 stdout F x",
            (NOON + 120_000_000, b"2023-11-14T22:13:20.120000000Z", LogStream.STDOUT, b"x\n"),
            id="a zero offset is shown as Z",
        ),
        pytest.param(
            b"2023-11-14T22:13:20Z stdout F ",
            (NOON, b"2023-11-14T22:13:20.000000000Z", LogStream.STDOUT, b"\n"),
            id="an empty line",
        ),
        pytest.param(
            b"2023-11-14T22:13:20Z stdout F  a \xff\r b ",
            (NOON, b"2023-11-14T22:13:20.000000000Z", LogStream.STDOUT, b" a \xff\r b \n"),
            id="content is bytes and is left alone",
        ),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"hello", None, id="no fields"),
        pytest.param(b"2023-11-14 stdout F x", None, id="a date without time"),
        pytest.param(b"2023-02-30T22:13:20Z stdout F x", None, id="a day that does not exist"),
        pytest.param(b"2023-11-14T22:13:20 stdout F x", None, id="no zone"),
        pytest.param(b"2023-11-14T22:13:20Z stdin F x", None, id="an unknown stream"),
        pytest.param(b"2023-11-14T22:13:20Z stdout", None, id="no tag"),
        pytest.param(b"2023-11-14T22:13:20Z stdout F", None, id="no blank after the tag"),
    ],
)
def test_parse_cri_line(line, expected):
    assert shown(parse_cri_line(line)) == expected


def test_an_incomplete_last_line_gets_no_newline():
    parsed = parse_cri_line(b"2023-11-14T22:13:20Z stdout F cut o", b"")
    assert parsed is not None
    assert parsed.content == b"cut o"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            rb'{"log":"hello\n","stream":"stdout","time":"2023-11-14T22:13:20.000000001Z"}',
            (NOON + 1, b"2023-11-14T22:13:20.000000001Z", LogStream.STDOUT, b"hello\n"),
            id="a line",
        ),
        pytest.param(
            '{"log":"ö","stream":"stderr","time":"2023-11-14T22:13:20Z","attrs":{"a":"b"}}'.encode(),
            (NOON, b"2023-11-14T22:13:20.000000000Z", LogStream.STDERR, "ö".encode()),
            id="a part of a line, with attributes",
        ),
        pytest.param(b"{", None, id="not JSON"),
        pytest.param(b"{}", None, id="no fields"),
        pytest.param(b'{"log":1,"stream":"stdout","time":"2023-11-14T22:13:20Z"}', None, id="a wrong type"),
        pytest.param(b'{"log":"x","stream":"stdin","time":"2023-11-14T22:13:20Z"}', None, id="an unknown stream"),
        pytest.param(b'{"log":"x","stream":"stdout","time":"yesterday"}', None, id="not an instant"),
        pytest.param(b'{"log":"x","stream":"stdout","time":"2023-02-30T22:13:20Z"}', None, id="no such day"),
        pytest.param(b'{"log":"\xff","stream":"stdout","time":"2023-11-14T22:13:20Z"}', None, id="not UTF-8"),
    ],
)
def test_parse_docker_line(line, expected):
    assert shown(parse_docker_line(line)) == expected


def test_the_first_line_chooses_the_format():
    assert detect_parser(b"2023-11-14T22:13:20Z stdout F x") is parse_cri_line
    docker = b'{"log":"x","stream":"stdout","time":"2023-11-14T22:13:20Z"}'
    assert detect_parser(docker) is parse_docker_line


def test_an_unknown_format_is_an_error_that_does_not_quote_the_line():
    """The text goes to clients and into the pod's status, and the line may be of any file."""
    with pytest.raises(LogError) as caught:
        detect_parser(b'say "hi"')
    assert str(caught.value) == "failed to get parse function: unsupported log format"
