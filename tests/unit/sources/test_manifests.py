import os

import pytest

from klet.sources.errors import SourceError
from klet.sources.manifests import ManifestReader, is_link

WEB = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: 'b:1'}]}\n"
DB = WEB.replace("web", "mydb")


@pytest.fixture
def reader():
    return ManifestReader(node_name="n")


def names(listing) -> dict[str, str | None]:
    return {name: reading.pod and reading.pod.metadata.name for name, reading in listing.readings.items()}


def test_a_directory_is_listed_by_name_with_the_bad_ones(reader, tmp_path):
    (tmp_path / "b.yaml").write_text(DB)
    (tmp_path / "a.yaml").write_text(WEB)
    (tmp_path / "c.yaml").write_text("nonsense")
    (tmp_path / ".d.yaml").write_text(WEB)
    (tmp_path / "dir").mkdir()
    listing = reader.list(tmp_path)
    assert list(names(listing).items()) == [("a.yaml", "web-n"), ("b.yaml", "mydb-n"), ("c.yaml", None)]
    assert listing.is_settled
    assert listing.readings["c.yaml"].error == f"{tmp_path}/c.yaml: document 1: the text is not an object"


def test_a_missing_path_has_nothing_and_says_so_once(reader, tmp_path, caplog):
    caplog.set_level("INFO")
    for _ in range(2):
        assert names(reader.list(tmp_path / "absent")) == {}
    assert caplog.messages == ["Manifest path does not exist, ignoring"]


def test_a_single_file_that_is_bad_settles_nothing(reader, tmp_path):
    path = tmp_path / "only.yaml"
    path.write_text(WEB)
    assert names(reader.list(path)) == {"only.yaml": "web-n"}
    path.write_text("nonsense")
    assert not reader.list(path).is_settled


def test_a_pipe_in_place_of_the_path_is_an_error(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="path is not a directory or file"):
        reader.list(tmp_path / "pipe")


def test_an_untouched_file_is_not_read_again(reader, tmp_path):
    (tmp_path / "a.yaml").write_text(WEB)
    first = reader.list(tmp_path).readings["a.yaml"]
    assert reader.list(tmp_path).readings["a.yaml"] is first
    (tmp_path / "a.yaml").write_text(DB)
    assert names(reader.list(tmp_path)) == {"a.yaml": "mydb-n"}


def test_a_file_that_came_back_is_read_again(reader, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(WEB)
    first = reader.list(tmp_path).readings["a.yaml"]
    path.unlink()
    assert reader.read(path) is None
    path.write_text(WEB)
    again = reader.list(tmp_path).readings["a.yaml"]
    assert again is not first
    assert again == first


def test_an_unreadable_file_is_reported_by_the_system(reader, tmp_path):
    (tmp_path / "a.yaml").symlink_to("a.yaml")
    reading = reader.read(tmp_path / "a.yaml")
    assert reading is not None
    assert reading.error == f"{tmp_path}/a.yaml: Too many levels of symbolic links"


def test_links_are_distinguished_from_files(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    assert not is_link(file)
    (tmp_path / "soft").symlink_to(file)
    assert is_link(tmp_path / "soft")
    (tmp_path / "hard").hardlink_to(file)
    assert is_link(tmp_path / "hard")
    assert not is_link(tmp_path / "absent")
