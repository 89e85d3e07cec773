"""What Fibre Channel disks are called, and reading that back."""

import pytest

from klet.api.codec import convert
from klet.api.volume import Volume
from klet.volumes.errors import VolumeSetupError
from klet.volumes.fc import fc_disk, volume_of_place
from klet.volumes.spec import VolumeSpec


def spec_of(**fields):
    return VolumeSpec(convert(Volume, {"name": "v", "fc": fields}))


@pytest.mark.parametrize(
    ("fields", "name", "place"),
    [
        pytest.param({"targetWWNs": ["50a", "50b"], "lun": 0}, "[50a 50b]:0", "50a-50b-lun-0", id="ports and a unit"),
        pytest.param({"wwids": ["3600508b"]}, "[3600508b]", "3600508b", id="one identifier"),
        pytest.param({"wwids": ["36", "37"]}, "[36 37]", "36-37", id="two identifiers"),
        pytest.param({"wwids": ["ATA disk"]}, "[ATA_disk]", "ATA_disk", id="a blank is what udev makes of it"),
        pytest.param(
            {"targetWWNs": ["50a"], "wwids": ["36"]},
            "[36]",
            "36",
            id="ports without a unit do not say which disk it is",
        ),
    ],
)
def test_names(fields, name, place):
    disk = fc_disk(spec_of(**fields))
    assert (disk.name, disk.place) == (name, place)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"targetWWNs": ["50a"]},
        {"lun": 0},
        {"targetWWNs": ["../50a"], "lun": 0},
        {"targetWWNs": ["50a"], "lun": -1},
        {"wwids": [".."]},
        {"wwids": ["a/b"]},
        {"wwids": ["a\nb"]},
        {"wwids": [""]},
        {"wwids": ["x" * 200, "y" * 200]},
    ],
)
def test_volumes_that_name_no_disk_are_refused(fields):
    with pytest.raises(VolumeSetupError):
        fc_disk(spec_of(**fields))


@pytest.mark.parametrize(
    ("fields", "link", "matches"),
    [
        pytest.param({"targetWWNs": ["50a"], "lun": 1}, "fc-0x50a-lun-1", True, id="a port"),
        pytest.param({"targetWWNs": ["50a"], "lun": 1}, "pci-0000:41:00.0-fc-0x50a-lun-1", True, id="a port of a card"),
        pytest.param({"targetWWNs": ["50a"], "lun": 1}, "fc-0x50a-lun-11", False, id="another unit"),
        pytest.param({"targetWWNs": ["50a"], "lun": 1}, "fc-0x50a-lun-1-part1", False, id="a partition"),
        pytest.param({"targetWWNs": ["50a"], "lun": 1}, "xfc-0x50a-lun-1", False, id="something before it"),
        pytest.param({"targetWWNs": ["5.a"], "lun": 1}, "fc-0x50a-lun-1", False, id="a dot is only a dot"),
    ],
)
def test_links_by_path(fields, link, matches):
    [pattern] = fc_disk(spec_of(**fields)).by_path
    assert bool(pattern.fullmatch(link)) is matches


@pytest.mark.parametrize(
    ("place", "wwns", "lun", "wwids"),
    [
        pytest.param("50a-50b-lun-3", ("50a", "50b"), 3, (), id="ports and a unit"),
        pytest.param("3600508b", (), None, ("3600508b",), id="one identifier"),
        pytest.param("36-37", (), None, ("36", "37"), id="two identifiers"),
        pytest.param("lun", (), None, ("lun",), id="an identifier like any other"),
    ],
)
def test_directories_are_read_back(place, wwns, lun, wwids):
    found = volume_of_place("v", place).fc
    assert (found.target_wwns, found.lun, found.wwids) == (wwns, lun, wwids)
    assert fc_disk(VolumeSpec(volume_of_place("v", place))).place == place


@pytest.mark.parametrize("place", ["lun-0", "50a-lun-x", "50a-lun-", "50a-lun-99999999999", "50a-lun-٣"])
def test_other_directories_are_not_taken_for_disks(place):
    with pytest.raises(VolumeSetupError):
        volume_of_place("v", place)
