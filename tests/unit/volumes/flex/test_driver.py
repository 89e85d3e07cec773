"""Finding the drivers of flexVolume."""

import os

import pytest

from klet.volumes.flex.driver import find_drivers


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "exec"


def add(directory, name, program="", *, mode=0o755):
    place = directory / name
    place.mkdir(parents=True)
    path = place / (program or name.rpartition("~")[2])
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_drivers_are_named_after_their_directories(directory):
    add(directory, "vendor~disk")
    add(directory, "plain")
    assert [(found.name, found.program) for found in find_drivers(directory)] == [
        ("plain", str(directory / "plain/plain")),
        ("vendor/disk", str(directory / "vendor~disk/disk")),
    ]


def test_what_is_no_driver_is_skipped(directory):
    add(directory, "vendor~installing", program=".installing")
    add(directory, ".vendor~hidden", program="hidden")
    add(directory, "vendor~unrunnable", mode=0o644)
    add(directory, "vendor~", program="x")
    (directory / "vendor~directory/directory").mkdir(parents=True)
    (directory / "file").write_text("")
    (directory / "vendor~dangling").mkdir()
    (directory / "vendor~dangling/dangling").symlink_to(directory / "nowhere")
    assert find_drivers(directory) == ()


def test_a_directory_that_is_not_there_has_none(directory):
    assert find_drivers(directory) == ()


def test_a_driver_that_was_replaced_is_another_one(directory):
    path = add(directory, "vendor~disk")
    [before] = find_drivers(directory)
    assert find_drivers(directory) == (before,)
    new = path.with_suffix(".new")
    new.write_text("#!/bin/sh\n")
    new.chmod(0o755)
    os.utime(new, ns=(1, 1))
    new.rename(path)
    [after] = find_drivers(directory)
    assert after != before
    assert after.name == before.name
