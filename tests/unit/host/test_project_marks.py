"""Trees that are given to a project: all in them, nothing outside, and all or nothing."""

import os
from contextlib import contextmanager

import pytest

from klet.host.project_marks import TreeTooLarge, mark_tree
from klet.host.quotactl import ProjectMark
from klet.testing.project_quotas import FakeProjectKernel

PROJECT = 1048577


@pytest.fixture
def kernel():
    return FakeProjectKernel()


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "v"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").touch()
    (root / "top").touch()
    return root


@contextmanager
def opened(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def mark_of(kernel, path):
    with opened(path) as descriptor:
        return kernel.read_mark(descriptor)


def test_everything_belongs_to_the_project_and_directories_pass_it_on(tree, kernel):
    with opened(tree) as root:
        mark_tree(root, tree, PROJECT, marks=kernel)
    for directory in (tree, tree / "a", tree / "a" / "b"):
        assert mark_of(kernel, directory) == ProjectMark(PROJECT, inherits=True)
    for file in (tree / "top", tree / "a" / "b" / "file"):
        assert mark_of(kernel, file) == ProjectMark(PROJECT)
    # A crash in between is found by the mark that the root has not.
    assert kernel.written[-1] == "v"
    assert kernel.written.index("a") < kernel.written.index("b") < kernel.written.index("file")


def test_a_tree_that_is_marked_is_left_alone(tree, kernel):
    with opened(tree) as root:
        mark_tree(root, tree, PROJECT, marks=kernel)
        kernel.written.clear()
        (tree / "new").touch()
        mark_tree(root, tree, PROJECT, marks=kernel)
    assert kernel.written == []


def test_links_lead_nowhere_and_pipes_are_not_opened(tree, kernel, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (tree / "directory").symlink_to(outside)
    (tree / "link").symlink_to(outside / "file")
    os.mkfifo(tree / "pipe")
    with opened(tree) as root:
        mark_tree(root, tree, PROJECT, marks=kernel)
    assert mark_of(kernel, outside) == mark_of(kernel, outside / "file") == ProjectMark()
    assert sorted(kernel.written) == ["a", "b", "file", "top", "v"]


@pytest.mark.parametrize("most", [0, 3])
def test_nothing_of_a_tree_that_is_too_large_is_marked(tree, kernel, most):
    with opened(tree) as root, pytest.raises(TreeTooLarge, match="too many files"):
        mark_tree(root, tree, PROJECT, marks=kernel, most=most)
    assert kernel.written == []


def test_nothing_of_a_tree_that_is_too_deep_is_marked(tmp_path, kernel):
    tree = tmp_path / "v"
    tree.joinpath(*["d"] * 102).mkdir(parents=True)
    with opened(tree) as root, pytest.raises(TreeTooLarge, match="levels"):
        mark_tree(root, tree, PROJECT, marks=kernel)
    assert kernel.written == []
