"""The command: what it lists, refuses and reports. What it runs again is in tests/fuzz: that forks."""

import io
import json
import subprocess
import sys

import pytest

from klet.testing.fuzz.__main__ import main
from klet.testing.fuzz.targets.all import all_targets


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KLET_CACHE", str(tmp_path))
    return tmp_path


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    return main(arguments, out=out, err=err), out.getvalue(), err.getvalue()


def test_the_targets_are_listed():
    code, text, _ = run("--list")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == list(all_targets())
    assert [each["name"] for each in json.loads(run("--list", "-o", "json")[1])] == list(all_targets())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param((), "TARGET must be one of", id="no target"),
        pytest.param(("none",), "TARGET must be one of", id="a target that there is not"),
        pytest.param(("manifests", "--minutes", "0"), "0 is not more than 0 and at most a day", id="no time"),
        pytest.param(("manifests", "--minutes", "nan"), "nan is not more than 0", id="a time that is none"),
        pytest.param(("manifests", "--minutes", "x"), "'x' is not a number of minutes", id="a time that is no number"),
        pytest.param(("manifests", "--executions", "-1"), "-1 is not more than 0", id="fewer than none"),
        pytest.param(("manifests", "--executions", "1.5"), "'1.5' is not a whole number", id="half an input"),
        pytest.param(("manifests", "--seed", "x"), "'x' is not a whole number", id="a seed that is no number"),
        pytest.param(("all", "--replay", "file"), "TARGET must be one of", id="a file for all targets"),
        pytest.param(("manifests", "-o", "xml"), "invalid choice", id="another form"),
        pytest.param(("manifests", "--engine", "x"), "invalid choice", id="another engine"),
    ],
)
def test_wrong_arguments(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err.partition("scripts/fuzz: error:")[2]
    assert said in error
    assert "_" not in error, "no name of a function is shown"


def test_the_help_names_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    assert "130 after Ctrl-C" in capsys.readouterr().out


def test_a_run_reports_what_it_did(cache):
    code, text, _ = run("log-lines", "--seed", "3", "--executions", "50", "-o", "json", "--engine", "own")
    summary = json.loads(text)
    assert code == 0
    assert (summary["target"], summary["seed"], summary["executions"], summary["findings"]) == ("log-lines", 3, 50, [])
    assert len(list((cache / "fuzz" / "log-lines" / "corpus").iterdir())) == summary["corpus"]
    assert "50 executions" in run("log-lines", "--executions", "50", "--engine", "own")[1]


def test_a_reader_that_has_seen_enough_ends_the_command_in_silence():
    command = [sys.executable, "-m", "klet.testing.fuzz", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait() == 0
