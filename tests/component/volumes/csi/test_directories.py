"""The file that says which volume a directory is of."""

import pytest

from klet.volumes.csi.directories import StillMounted, make_place, read_data, write_data
from klet.volumes.csi.places import DATA_FILE, Place
from klet.volumes.csi.vol_data import VolumeData

ONE = VolumeData(driver_name="d", volume_handle="1", spec_vol_id="pv")


@pytest.fixture
def place(tmp_path):
    found = Place(tmp_path, ("data",))
    make_place(found)
    return found


@pytest.mark.parametrize(
    "other",
    [VolumeData(driver_name="d", volume_handle="2"), VolumeData(driver_name="e", volume_handle="1")],
    ids=["another volume", "another driver"],
)
def test_the_file_of_another_volume_stays(place, other):
    """A PersistentVolume that was made again has the name, and so the directory, of the one before."""
    write_data(place, ONE)
    with pytest.raises(StillMounted, match=r"is of d\^1, which has not been taken down$"):
        write_data(place, other)
    assert read_data(place) == ONE


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"driverName":"d"}'])
def test_a_file_that_says_nothing_is_replaced(place, content):
    (place.path / DATA_FILE).write_bytes(content)
    write_data(place, ONE)
    assert read_data(place) == ONE


def test_more_is_said_of_the_same_volume(place):
    write_data(place, VolumeData(driver_name="d", volume_handle="1"))
    write_data(place, ONE)
    assert read_data(place) == ONE
