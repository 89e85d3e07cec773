from pathlib import Path

import pytest

from klet.cli.node.node import NodeError, find_node, make_state_directory
from klet.cli.node.preparation import is_of_this_boot


def test_a_loop_of_links_is_no_state_directory(tmp_path):
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(NodeError, match="round"):
        find_node(tmp_path / "round")


def test_the_state_directory_is_made_with_its_parents_and_found_again(tmp_path):
    node = find_node(tmp_path / "a" / "b")
    make_state_directory(node)
    node.paths.manifests.mkdir()
    make_state_directory(node)


def test_a_directory_with_other_things_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(NodeError, match=r"thesis\.tex"):
        make_state_directory(find_node(tmp_path))


def test_a_node_may_hold_other_things(tmp_path):
    node = find_node(tmp_path)
    node.paths.record.touch()
    (tmp_path / "note").touch()
    make_state_directory(node)


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_is_no_state_directory(tmp_path: Path, name):
    (tmp_path / "file").touch()
    with pytest.raises(NodeError, match="file"):
        make_state_directory(find_node(tmp_path / name))


def test_run_files_with_a_damaged_note_are_of_an_earlier_boot(tmp_path):
    node = find_node(tmp_path)
    node.paths.boot.parent.mkdir()
    node.paths.boot.write_bytes(b"\xff\xfe\x00")
    assert not is_of_this_boot(node)
