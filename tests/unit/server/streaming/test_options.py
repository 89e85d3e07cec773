"""What streaming requests ask for."""

import pytest

from klet.server.streaming.options import BadOptions, StreamOptions, read_ports, read_streams


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(
            {"input": "1", "output": "1", "error": "1"},
            StreamOptions(stdin=True, stdout=True, stderr=True, tty=False),
            id="all three",
        ),
        pytest.param(
            {"output": "1", "error": "1", "tty": "1"},
            StreamOptions(stdin=False, stdout=True, stderr=False, tty=True),
            id="a terminal has no errors of its own",
        ),
        pytest.param(
            {"output": "true", "error": "1"},
            StreamOptions(stdin=False, stdout=False, stderr=True, tty=False),
            id="only 1 is yes",
        ),
        *[
            pytest.param(query, BadOptions("you must specify at least 1 of stdin, stdout, stderr"), id=name)
            for name, query in {
                "nothing": {},
                "zeros": {"input": "0", "output": "0"},
                "nothing but the errors of a terminal": {"error": "1", "tty": "1"},
            }.items()
        ],
    ],
)
def test_streams(query, expected):
    assert read_streams(query) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["80"], (80,)),
        (["80,81", "65535"], (80, 81, 65535)),
        pytest.param(["0" * 5000 + "80"], (80,), id="more zeros than Python reads"),
        pytest.param(["0" * 5000], BadOptions(f'port "{"0" * 5000}" must be > 0'), id="nothing but zeros"),
        ([], BadOptions('query parameter "port" is required')),
        ([""], BadOptions('query parameter "port" cannot be empty')),
        (["0"], BadOptions('port "0" must be > 0')),
        (
            ["80,x"],
            BadOptions('unable to parse "80,x" as a port: strconv.ParseUint: parsing "x": invalid syntax'),
        ),
        (["-1"], BadOptions('unable to parse "-1" as a port: strconv.ParseUint: parsing "-1": invalid syntax')),
        (
            ["65536"],
            BadOptions('unable to parse "65536" as a port: strconv.ParseUint: parsing "65536": value out of range'),
        ),
    ],
)
def test_ports(values, expected):
    assert read_ports(values) == expected
