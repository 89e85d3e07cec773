"""The launcher on a small project of its own: the real script, a real .venv, no network."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "klet"
version = "1"
"""
# A build backend that needs nothing installed: an editable wheel is a zip with the path of the sources.
BACKEND = """
import pathlib, zipfile

def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "klet-1-py3-none-any.whl"
    files = {
        "klet.pth": str(pathlib.Path("src").resolve()),
        "klet-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: klet\\nVersion: 1\\n",
        "klet-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr("klet-1.dist-info/RECORD", "".join(f"{path},,\\n" for path in files))
    with open("builds", "a") as log:
        log.write("built\\n")
    return name
"""
PROGRAM = """
import os, sys
print(sys.argv[1:], os.getcwd(), sys.prefix != sys.base_prefix)
sys.exit(7 if sys.argv[1:] == ["seven"] else 0)
"""


class Checkout:
    """A directory that looks like the repository to the launcher."""

    def __init__(self, directory):
        self.directory = directory
        self.launcher = directory / "klet"
        (directory / "src/klet").mkdir(parents=True)
        (directory / "src/klet/__init__.py").touch()
        (directory / "src/klet/__main__.py").write_text(PROGRAM)
        (directory / "pyproject.toml").write_text(PYPROJECT)
        (directory / "backend.py").write_text(BACKEND)
        (directory / "requirements.lock").write_text("# nothing\n")
        shutil.copy(ROOT / "klet", self.launcher)

    def command(self, *arguments, program=None):
        return [str(program or self.launcher), *arguments]

    def run(self, *arguments, program=None, cwd="/", **environment):
        return subprocess.run(
            self.command(*arguments, program=program),
            cwd=cwd,
            env={**os.environ, "KLET_PYTHON": sys.executable, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def builds(self):
        path = self.directory / "builds"
        return path.read_text().count("built") if path.exists() else 0


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    checkout = Checkout(tmp_path_factory.mktemp("checkout") / "a place")
    first = checkout.run("up", "x y")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "['up', 'x y'] / True\n"
    assert "first use" in first.stderr
    return checkout


def test_a_later_use_installs_nothing_and_says_nothing(installed):
    builds = installed.builds()
    later = installed.run("ps")
    assert (later.stdout, later.stderr) == ("['ps'] / True\n", "")
    assert installed.builds() == builds


def test_it_works_from_anywhere_and_through_links(installed, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(installed.launcher)
    second = tmp_path / "second"
    second.symlink_to("link")
    assert installed.run(program=second, cwd=tmp_path).stdout == f"[] {tmp_path} True\n"


def test_a_link_called_kubelet_is_the_agent(installed, tmp_path):
    link = tmp_path / "kubelet"
    link.symlink_to(installed.launcher)
    assert installed.run("--version", "a b", program=link).stdout == "['run', '--version', 'a b'] / True\n"


def test_the_exit_code_is_klets(installed):
    assert installed.run("seven").returncode == 7


def test_modules_in_the_working_directory_are_not_imported(installed, tmp_path):
    (tmp_path / "klet.py").write_text("raise SystemExit('taken over')")
    (tmp_path / "os.py").write_text("raise SystemExit('taken over')")
    assert installed.run(cwd=tmp_path).returncode == 0


def bytecode_of(checkout):
    return sorted(path.name.partition(".")[0] for path in checkout.directory.glob(".venv/bytecode/**/src/klet/*.pyc"))


def test_where_python_may_not_keep_bytecode_the_launcher_does(installed):
    """Otherwise every start compiles everything: PYTHONDONTWRITEBYTECODE is set in many images."""
    assert "__main__" in bytecode_of(installed)
    added = installed.directory / "src/klet/added.py"
    added.write_text("")
    later = time.time() + 2
    os.utime(added, (later, later))
    installed.run(PYTHONDONTWRITEBYTECODE="1")
    assert "added" in bytecode_of(installed)


def test_bytecode_that_was_removed_is_made_again(installed):
    shutil.rmtree(installed.directory / ".venv/bytecode")
    installed.run(PYTHONDONTWRITEBYTECODE="1")
    assert "__main__" in bytecode_of(installed)


def test_two_uses_that_make_the_bytecode_at_once_both_start(installed):
    shutil.rmtree(installed.directory / ".venv/bytecode")
    both = [
        subprocess.Popen(installed.command(word), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for word in ("one", "two")
    ]
    assert [process.communicate() for process in both] == [("['one'] / True\n", ""), ("['two'] / True\n", "")]


def test_bytecode_that_cannot_be_written_stops_nothing(installed, tmp_path):
    (installed.directory / ".venv/klet-compiled.new").mkdir()
    (installed.directory / ".venv/klet-compiled").unlink(missing_ok=True)
    shutil.rmtree(installed.directory / ".venv/bytecode", ignore_errors=True)
    (installed.directory / ".venv/bytecode").write_text("no directory")
    try:
        answer = installed.run("ps", PYTHONDONTWRITEBYTECODE="1")
    finally:
        (installed.directory / ".venv/bytecode").unlink()
        shutil.rmtree(installed.directory / ".venv/klet-compiled.new", ignore_errors=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "['ps'] / True\n", "")


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements.lock"])
def test_a_changed_file_installs_again(installed, name):
    builds = installed.builds()
    path = installed.directory / name
    path.write_text(path.read_text() + "\n# changed\n")
    assert installed.run().returncode == 0
    assert installed.builds() == builds + 1


def test_a_broken_venv_is_made_again(installed):
    python = installed.directory / ".venv/bin/python"
    (installed.directory / ".venv/klet-stamp").unlink()
    python.unlink()
    assert installed.run("again").stdout == "['again'] / True\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run the tests as root")
def test_a_user_who_may_not_run_the_venvs_python_gets_an_error_that_says_so(installed, tmp_path_factory):
    public = Path(f"/tmp/klet-launcher-{os.getpid()}")
    private = tmp_path_factory.mktemp("private")
    private.chmod(0o700)
    try:
        shutil.copytree(installed.directory, public, symlinks=True)
        python = public / ".venv/bin/python"
        (private / "python").symlink_to(sys.executable)
        python.unlink()
        python.symlink_to(private / "python")
        answer = subprocess.run([public / "klet"], capture_output=True, text=True, user=65534, group=65534, check=False)
    finally:
        shutil.rmtree(public)
    assert answer.returncode == 1
    assert f"this user may not run {python} (which is {private}/python): use sudo" in answer.stderr


def test_two_first_uses_install_once(tmp_path):
    checkout = Checkout(tmp_path / "twice")
    environment = {**os.environ, "KLET_PYTHON": sys.executable}
    both = [
        subprocess.Popen(checkout.command(word), cwd="/", env=environment, stdout=subprocess.PIPE, text=True)
        for word in ("one", "two")
    ]
    assert [process.communicate()[0] for process in both] == ["['one'] / True\n", "['two'] / True\n"]
    assert checkout.builds() == 1


def test_a_first_use_that_was_killed_is_repaired(tmp_path):
    checkout = Checkout(tmp_path / "killed")
    environment = {**os.environ, "KLET_PYTHON": sys.executable}
    first = subprocess.Popen(
        checkout.command(), cwd="/", env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    with first:
        first.stderr.readline()
        os.killpg(first.pid, signal.SIGKILL)
    assert checkout.run("later").stdout == "['later'] / True\n"


def test_an_old_python_is_refused_with_advice(tmp_path):
    checkout = Checkout(tmp_path / "old")
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    # Without apt-get on the path the launcher can only give advice.
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "readlink", "sha256sum", "cat", "id", "rm", "flock"):
        (tools / tool).symlink_to(shutil.which(tool))
    answer = checkout.run(KLET_PYTHON=str(old), PATH=str(tools))
    assert answer.returncode == 1
    assert "needs Python 3.11 or newer" in answer.stderr
