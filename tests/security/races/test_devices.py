"""Block devices and CSI volumes: a driver or a pod with a hostPath swaps names while they come and go.

What the drivers do is theirs; here are the directories, links and files that the agent makes and removes around that.
"""

import pytest

from klet.model.pods import PodUID
from klet.testing.races.attacker import Decoy, Swap
from klet.volumes.csi import directories
from klet.volumes.csi.places import CsiLayout
from klet.volumes.csi.vol_data import VolumeData
from klet.volumes.device_host import BlockMapping
from klet.volumes.errors import VolumeSetupError
from klet.volumes.host_devices import DeviceFiles

UID = PodUID("u-1")
DATA = VolumeData(driver_name="driver", volume_handle="handle")
DEVICES = f"pods/{UID}/volumeDevices/kubernetes.io~csi"
CSI = "plugins/kubernetes.io/csi"
BLOCKS = f"{CSI}/volumeDevices"
PUBLISHED = f"pods/{UID}/volumes/kubernetes.io~csi"
LINKS = (
    Swap(f"pods/{UID}", to="pod"),
    Swap(f"pods/{UID}/volumeDevices", to="pod/volumeDevices"),
    Swap(DEVICES, to="devices"),
    Swap(f"{DEVICES}/v", to="devices/v", plants=True, decoys=(Decoy.LINK, Decoy.RELATIVE_LINK, Decoy.DIRECTORY)),
    Swap(f"{DEVICES}/.new-link", to="devices/v", plants=True, decoys=(Decoy.LINK, Decoy.PIPE, Decoy.HARD_LINK)),
)
MAPS = (
    Swap("plugins/*", to="csi/.."),
    Swap(CSI, to="csi"),
    Swap(BLOCKS, to="csi/volumeDevices"),
    Swap(f"{BLOCKS}/v", to="csi/volumeDevices/v"),
    Swap(f"{BLOCKS}/v/dev", to="csi/volumeDevices/v/dev"),
    Swap(f"{BLOCKS}/v/dev/{UID}", to=f"csi/volumeDevices/v/dev/{UID}", plants=True),
)
VOLUMES = (
    Swap(f"pods/{UID}", to="pod"),
    Swap(f"pods/{UID}/volumes", to="pod/volumes"),
    Swap(PUBLISHED, to="volumes"),
    Swap(f"{PUBLISHED}/v", to="volumes/v"),
    Swap(f"{PUBLISHED}/v/mount", to="volumes/v/mount", plants=True, decoys=(Decoy.LINK, Decoy.DIRECTORY)),
    Swap(
        f"{PUBLISHED}/v/vol_data.json",
        to="volumes/v/vol_data.json",
        plants=True,
        decoys=(Decoy.LINK, Decoy.RELATIVE_LINK, Decoy.PIPE, Decoy.HARD_LINK, Decoy.DIRECTORY),
    ),
    Swap(
        f"{PUBLISHED}/v/vol_data.json.new",
        to="volumes/v/vol_data.json",
        plants=True,
        decoys=(Decoy.LINK, Decoy.PIPE, Decoy.HARD_LINK, Decoy.DIRECTORY),
    ),
)
STAGES = (
    Swap(f"{CSI}/driver", to="csi/driver"),
    Swap(f"{CSI}/driver/*", to="stage"),
    Swap(f"{CSI}/driver/*/globalmount", to="stage/globalmount", plants=True),
    Swap(f"{CSI}/driver/*/vol_data.json", to="stage/vol_data.json", decoys=(Decoy.LINK, Decoy.PIPE, Decoy.HARD_LINK)),
)
SENTINELS = (
    "pod/volumeDevices/kubernetes.io~csi/v",
    "devices/v",
    f"csi/volumeDevices/v/dev/{UID}",
    "csi/driver/stage/vol_data.json",
    "pod/volumes/kubernetes.io~csi/v/vol_data.json",
    "pod/volumes/kubernetes.io~csi/v/mount/",
    "volumes/v/vol_data.json",
    "volumes/v/mount/",
    "stage/vol_data.json",
    "stage/globalmount/",
)


class NoLoops:
    """A machine without loop devices: racers may not make any."""

    def find(self, _device):
        return None


class Devices:
    """The link of a pod to its device, and the place of the device in the volume's directory of all pods."""

    attempts = 1

    def __init__(self, arena):
        self.arena = arena
        self.files = DeviceFiles(root=arena.inside, loops=NoLoops())
        path = arena.inside / BLOCKS / "v/dev"
        self.mapping = BlockMapping(uid=UID, map_path=str(path), link=arena.inside / DEVICES / "v")

    def prepare(self):
        for name in (f"{BLOCKS}/v/dev", DEVICES):
            (self.arena.stage / name).mkdir(parents=True, exist_ok=True)
        (self.arena.stage / BLOCKS / "v/dev" / UID).touch()
        (self.arena.stage / DEVICES / "v").symlink_to("/dev/null")
        for name in ("plugins", "pods"):
            self.arena.move_in(name)


class Announcer(Devices):
    attempts = 20

    def attempt(self):
        self.files.announce(self.mapping)
        self.files.unlink(self.mapping)
        return b""


class Unmapper(Devices):
    def attempt(self):
        self.files.mapped(self.mapping.map_path)
        self.files.unlock(self.mapping)
        self.files.unbind(self.mapping)
        self.files.unlink(self.mapping)
        self.files.remove_map(self.mapping.map_path)
        return b""


class Mapper(Devices):
    """Racers have no block devices, so each attempt ends before the bind; all before that is done."""

    attempts = 20

    def attempt(self):
        try:
            self.files.map_device(self.mapping, self.arena.stage)
        except VolumeSetupError as error:
            if "is not a block device" not in str(error):
                raise
        return b""


class Publication:
    """The directory of a CSI volume of a pod: made, described, read and removed."""

    attempts = 20

    def __init__(self, arena):
        self.arena = arena
        layout = CsiLayout(arena.inside)
        self.mount = layout.target(UID, "v")
        self.tops = ("pods",)

    def prepare(self):
        for top in self.tops:
            (self.arena.stage / top).mkdir(exist_ok=True)
            self.arena.move_in(top)
        directories.make_place(self.mount)

    def attempt(self):
        directories.make_place(self.mount)
        directories.write_data(self.mount.parent, DATA)
        found = directories.read_data(self.mount.parent)
        directories.remove_mounted(self.mount)
        return repr(found).encode()


class Stage(Publication):
    def __init__(self, arena):
        super().__init__(arena)
        self.mount = CsiLayout(arena.inside).staging("driver", "handle")
        self.tops = ("plugins",)


class NaivePublication(Publication):
    def attempt(self):
        self.mount.path.mkdir(parents=True, exist_ok=True)
        data = self.mount.parent.path / "vol_data.json"
        if not data.is_symlink() and not self.mount.parent.path.is_symlink():
            data.write_bytes(b"{}")
        self.mount.path.rmdir()
        return b""


class NaiveUnmapper(Devices):
    def attempt(self):
        device = self.arena.inside / BLOCKS / "v/dev" / UID
        if device.resolve() == device:
            device.unlink()
        return b""


@pytest.fixture(autouse=True)
def _sentinels(arena):
    arena.plant(*SENTINELS)


@pytest.mark.parametrize("victim", [Announcer, Unmapper])
def test_who_swaps_names_on_the_way_to_the_link_of_a_device_has_nothing_changed_elsewhere(arena, survives, victim):
    survives(lambda: victim(arena), *LINKS)


@pytest.mark.parametrize("victim", [Mapper, Unmapper])
def test_who_swaps_names_on_the_way_to_a_device_has_nothing_changed_elsewhere(arena, survives, victim):
    survives(lambda: victim(arena), *MAPS)


def test_who_swaps_names_around_a_published_volume_has_nothing_changed_elsewhere(arena, survives):
    survives(lambda: Publication(arena), *VOLUMES)


def test_who_swaps_names_around_a_staged_volume_has_nothing_changed_elsewhere(arena, survives):
    survives(lambda: Stage(arena), *STAGES)


def test_a_naive_publication_is_broken(arena, breaks):
    assert breaks(lambda: NaivePublication(arena), *VOLUMES[2:6])


def test_a_naive_removal_of_a_device_is_broken(arena, breaks):
    assert "removed" in breaks(lambda: NaiveUnmapper(arena), *MAPS[1:])
