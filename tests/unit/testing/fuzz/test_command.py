"""The command: what it lists, refuses, runs again and reports."""

import io
import json

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
    "arguments",
    [
        pytest.param((), id="no target"),
        pytest.param(("none",), id="a target that there is not"),
        pytest.param(("manifests", "--minutes", "0"), id="no time"),
        pytest.param(("manifests", "--minutes", "x"), id="a time that is no number"),
        pytest.param(("manifests", "--executions", "-1"), id="fewer than none"),
        pytest.param(("all", "--replay", "file"), id="a file for all targets"),
        pytest.param(("manifests", "-o", "xml"), id="another form"),
    ],
)
def test_wrong_arguments(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2
    assert "scripts/fuzz: error:" in capsys.readouterr().err


def test_the_help_names_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    assert "130 after Ctrl-C" in capsys.readouterr().out


def test_a_run_reports_what_it_did(cache):
    code, text, _ = run("log-lines", "--seed", "3", "--executions", "50", "-o", "json")
    summary = json.loads(text)
    assert code == 0
    assert (summary["target"], summary["seed"], summary["executions"], summary["findings"]) == ("log-lines", 3, 50, [])
    assert len(list((cache / "fuzz" / "log-lines" / "corpus").iterdir())) == summary["corpus"]
    assert "50 executions" in run("log-lines", "--executions", "50")[1]


def test_a_file_is_run_again(tmp_path):
    file = tmp_path / "input"
    file.write_bytes(b"no log\n")
    assert run("log-lines", "--replay", str(file)) == (0, "log-lines: nothing is wrong with it\n", "")
    assert run("log-lines", "--replay", str(tmp_path / "none"))[0] == 2
