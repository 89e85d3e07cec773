import gc
import os
import subprocess
import sys

import pytest

from klet.__main__ import AUTHORITIES, agent_arguments, is_version_request, lightly
from klet.version import KUBELET_VERSION


@pytest.mark.parametrize(
    ("program", "arguments", "expected"),
    [
        pytest.param("/usr/bin/klet", ["run", "--v=2"], ["--v=2"], id="run is the agent, without its own word"),
        pytest.param("/usr/bin/kubelet", ["--v=2"], ["--v=2"], id="called kubelet it is the agent"),
        pytest.param("/usr/bin/kubelet", ["run"], ["run"], id="called kubelet there is no run command"),
        pytest.param("klet", ["up", "run"], None, id="run is only a command in first place"),
        pytest.param("klet", [], None, id="no arguments is the command line"),
        pytest.param("/x/klet/__main__.py", ["ps"], None, id="started as a module"),
    ],
)
def test_agent_arguments(program, arguments, expected):
    assert agent_arguments(program, arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--version"], True, id="alone"),
        pytest.param(["--v=2", "--version=true"], True, id="after another flag"),
        pytest.param(["--version=false"], False, id="switched off"),
        pytest.param(["--version=raw"], False, id="raw is the agent's"),
        pytest.param(["--", "--version"], False, id="after the end of flags"),
        pytest.param([], False, id="nothing"),
    ],
)
def test_is_version_request(arguments, expected):
    assert is_version_request(arguments) is expected


def test_the_version_of_the_kubelet_needs_neither_the_agent_nor_the_command_line():
    code = (
        "import sys; from klet.__main__ import dispatch; dispatch('kubelet', ['--version']);"
        "print([m for m in ('typer', 'rich', 'grpc', 'klet.cli') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == f"Kubernetes {KUBELET_VERSION}\n[]\n"


@pytest.mark.parametrize(
    "given", [pytest.param(None, id="none are named"), pytest.param("/etc/mine.pem", id="somebody names them")]
)
def test_the_authorities_of_the_machine_are_as_before_once_the_agent_is_imported(monkeypatch, given):
    monkeypatch.delenv(AUTHORITIES, raising=False)
    if given is not None:
        monkeypatch.setenv(AUTHORITIES, given)
    try:
        with lightly():
            assert (gc.isenabled(), os.environ[AUTHORITIES]) == (False, os.devnull)
        assert (gc.isenabled(), os.environ.get(AUTHORITIES)) == (True, given)
    finally:
        gc.unfreeze()
