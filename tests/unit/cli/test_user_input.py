import io

import pytest

from klet.cli.user_input import read_input, read_signatures

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"


def read(*arguments, stdin=b""):
    return read_input(arguments, check=lambda _: (), is_strict=False, stdin=io.BytesIO(stdin))


def test_files_directories_and_standard_input_together(tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(POD % "a")
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "b.yaml").write_text(POD % "b")
    (directory / "notes").write_text("not read")
    given = read(str(file), str(directory), "-", stdin=(POD % "c").encode())
    assert [(origin.path, [pod.key.name for pod in origin.pods]) for origin in given.origins] == [
        (str(file), ["a"]),
        (str(directory / "b.yaml"), ["b"]),
        ("stdin", ["c"]),
    ]
    assert (given.errors, given.directories) == ((), (str(directory),))


@pytest.mark.parametrize("stdin", [b"", b"# only words\n---\n"], ids=["nothing", "no document"])
def test_standard_input_without_a_manifest_is_an_error_and_removes_nothing(stdin):
    given = read("-", stdin=stdin)
    assert given.errors == ("stdin: no manifest was written to it",)
    assert not given.origins[0].is_complete


def test_a_directory_without_manifests_is_an_error_and_removes_nothing(tmp_path):
    given = read(str(tmp_path))
    assert given.errors == (f"{tmp_path}: no manifest in this directory (*.yaml, *.yml, *.json)",)
    assert given.directories == ()


def test_an_empty_name_is_not_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text(POD % "a")
    monkeypatch.chdir(tmp_path)
    given = read("")
    assert (given.origins, given.errors) == ((), ("FILE: an empty name means no file",))


def test_a_file_that_is_not_there(tmp_path):
    assert read(str(tmp_path / "x")).errors == (f"{tmp_path}/x: No such file or directory",)


def test_the_same_pod_twice_applies_nothing(tmp_path):
    for name in "fg":
        (tmp_path / name).write_text(POD % "a")
    given = read(str(tmp_path / "f"), str(tmp_path / "g"))
    assert given.origins == ()
    assert "already in" in given.errors[0]


def test_a_file_that_changes_changes_its_signature(tmp_path):
    file = tmp_path / "f"
    absent = read_signatures([str(file)])
    file.write_text("a")
    first = read_signatures([str(file)])
    file.write_text("bc")
    assert absent == {str(file): None}
    assert first not in (absent, read_signatures([str(file)]))
