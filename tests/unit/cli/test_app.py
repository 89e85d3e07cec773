import json

import pytest

from klet.cli.app import main
from klet.version import KUBERNETES_VERSION, __version__


def test_version(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"klet {__version__} (Kubernetes {KUBERNETES_VERSION})\n"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"klet {__version__} (Kubernetes {KUBERNETES_VERSION})\n"
    assert main(["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["klet"] == __version__


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        pytest.param(["ps", "--state-dir", "/nowhere"], 1, "`klet up` starts one", id="no node"),
        pytest.param(
            ["ps", "-o", "xml"],
            2,
            "'table', 'wide'",
            id="a format that is not there names those that are",
        ),
        pytest.param(["up", "-d", "-w", "x"], 2, "--watch follows files", id="watching without staying"),
        pytest.param(["up", "-w", "-"], 2, "--watch follows files", id="watching standard input"),
        pytest.param(["ps", "--state-dir", __file__], 1, "is not a directory", id="a file instead of a directory"),
        pytest.param(["ps", "-w", "-o", "json"], 2, "--watch prints a table", id="options that do not go together"),
        pytest.param(["explain", "x", "-o", "yaml"], 2, "only json", id="another format that is not there"),
        pytest.param(["logs", "x", "--since", "5x"], 2, "unknown unit", id="no duration"),
        pytest.param(["logs", "x", "--since", "-5s"], 2, "is over", id="a duration that is negative"),
        pytest.param(["ps", "--state-dir", "/" + "x" * 200], 1, "too long", id="a directory too deep for a socket"),
        pytest.param(["nonsense"], 2, "nonsense", id="no command"),
    ],
)
def test_errors_are_short_and_have_a_code(capsys, arguments, code, expected):
    assert main(arguments) == code
    reported = capsys.readouterr().err
    assert expected in reported
    assert "Traceback" not in reported


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    reported = capsys.readouterr().out
    for command in ("up", "down", "install", "uninstall", "ps", "logs", "explain", "version", "run"):
        assert f" {command} " in reported
    assert " boot " not in reported
