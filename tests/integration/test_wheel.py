"""The wheel works without the repository: everything it needs is in it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-input",
        "-w",
        str(directory),
        str(ROOT),
    ]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr
    [wheel] = directory.glob("klet-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/", env=environment, timeout=60)


def test_the_agent_and_the_commands_come_from_the_wheel(installed):
    answer = run(installed, "-c", "import klet.app.run, klet.cli.app, klet; print(klet.__file__)")
    assert Path(answer.stdout.strip()).is_relative_to(installed)


def test_it_says_its_version_as_kubeadm_reads_it(installed):
    assert run(installed, "-m", "klet", "run", "--version").stdout.startswith("Kubernetes v1.35.")


def test_it_carries_types_and_licence(installed):
    assert (installed / "klet" / "py.typed").exists()
    assert list(installed.glob("klet-*.dist-info/licenses/LICENSE"))
