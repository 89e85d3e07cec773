"""What iSCSI disks are called, and reading that back, whatever somebody has written there."""

import pytest
from msgspec import json

from klet.api.codec import convert
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.volumes.errors import VolumeSetupError
from klet.volumes.iscsi.disk import (
    IscsiDisk,
    SecretName,
    decode_record,
    device_name,
    disk_of_place,
    encode_record,
    full_portal,
    iscsi_disk,
    volume_of_place,
)
from klet.volumes.spec import VolumeSpec

IQN = "iqn.2030-01.example.com:disks"


def inline(**fields):
    source = {"targetPortal": "10.0.0.1", "iqn": IQN, "lun": 3, **fields}
    return VolumeSpec(convert(Volume, {"name": "v", "iscsi": source}))


def claimed(**fields):
    source = {"targetPortal": "10.0.0.1", "iqn": IQN, "lun": 3, **fields}
    volume = convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": {"iscsi": source}})
    return VolumeSpec(Volume(name="v"), volume)


@pytest.mark.parametrize(
    ("portal", "expected"),
    [("10.0.0.1", "10.0.0.1:3260"), ("10.0.0.1:860", "10.0.0.1:860"), ("[fe80::1]:3260", "[fe80::1]:3260")],
)
def test_a_portal_without_port_gets_the_default(portal, expected):
    assert full_portal(portal) == expected


@pytest.mark.parametrize(
    ("spec", "interface", "place"),
    [
        pytest.param(inline(), "default", ("iface-default", f"10.0.0.1:3260-{IQN}-lun-3"), id="inline"),
        pytest.param(
            claimed(iscsiInterface="eth", portals=["10.0.0.2"]),
            "eth",
            ("iface-eth", f"10.0.0.1:3260-{IQN}-lun-3"),
            id="a persistent volume with an interface and two portals",
        ),
        pytest.param(
            inline(initiatorName="iqn.2030-01.example:me"),
            "10.0.0.1:3260:v",
            ("iface-10.0.0.1:3260:v", f"10.0.0.1:3260-{IQN}-lun-3"),
            id="an initiator name has an interface of its own",
        ),
    ],
)
def test_interface_and_directory(spec, interface, place):
    disk = iscsi_disk(spec, namespace="ns")
    assert disk.interface == interface
    assert disk.place == place


def test_portals_are_not_used_twice():
    disk = iscsi_disk(inline(portals=["10.0.0.2:3260", "10.0.0.1:3260", "10.0.0.2"]), namespace="ns")
    assert disk.portals == ("10.0.0.1:3260", "10.0.0.2:3260")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(inline(), None, id="none"),
        pytest.param(inline(secretRef={"name": "chap"}), SecretName("ns", "chap"), id="inline: the pod's namespace"),
        pytest.param(
            claimed(secretRef={"name": "chap", "namespace": "storage"}), SecretName("storage", "chap"), id="its own"
        ),
        pytest.param(claimed(secretRef={"name": "chap"}), SecretName("ns", "chap"), id="the claim's namespace"),
    ],
)
def test_secret(spec, expected):
    assert iscsi_disk(spec, namespace="ns").secret == expected


def test_the_name_on_the_node_has_the_portal_as_it_was_given():
    assert device_name(inline()) == f"10.0.0.1:{IQN}:3"
    assert device_name(claimed(targetPortal="10.0.0.1:3260")) == f"10.0.0.1:3260:{IQN}:3"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"iqn": "iqn.2030-01.example:../../../../etc"}, id="the name of a target leads out"),
        pytest.param({"iqn": "iqn.2030-01.example:a/b"}, id="a slash in the name of a target"),
        pytest.param({"targetPortal": "../x"}, id="a portal leads out"),
        pytest.param({"targetPortal": "--help"}, id="a portal is an option"),
        pytest.param({"iqn": "-o"}, id="the name of a target is an option"),
        pytest.param({"portals": ["a/b"]}, id="a slash in another portal"),
        pytest.param({"iscsiInterface": "../.."}, id="an interface leads out"),
        pytest.param({"iscsiInterface": "a\0b"}, id="a NUL byte in an interface"),
        pytest.param({"iqn": "iqn.x\n"}, id="a line break"),
        pytest.param({"iqn": "iqn." + "x" * 255}, id="a name that no directory can have"),
        pytest.param({"lun": -1}, id="a negative unit"),
    ],
)
def test_names_that_cannot_be_parts_of_paths_or_arguments_are_refused(fields):
    with pytest.raises(VolumeSetupError):
        iscsi_disk(inline(**fields), namespace="ns")


@pytest.mark.parametrize(
    ("name", "portal", "iqn", "lun"),
    [
        pytest.param(f"10.0.0.1:3260-{IQN}-lun-3", "10.0.0.1:3260", IQN, 3, id="a name"),
        pytest.param(f"[fe80::1]:3260-{IQN}-lun-0", "[fe80::1]:3260", IQN, 0, id="an IPv6 portal"),
        pytest.param("h:1-eui.0123456789abcdef-lun-1", "h:1", "eui.0123456789abcdef", 1, id="an eui name"),
        pytest.param("h:1-naa.0123456789abcdef-lun-1", "h:1", "naa.0123456789abcdef", 1, id="an naa name"),
        pytest.param("h:1-iqn.x-lun-1-lun-2", "h:1", "iqn.x-lun-1", 2, id="a target whose name ends like a unit"),
    ],
)
def test_directories_are_read_back(name, portal, iqn, lun):
    disk = disk_of_place("iface-default", name)
    assert (disk.portals, disk.iqn, disk.lun, disk.base_interface) == ((portal,), iqn, lun, "default")
    assert disk.place == ("iface-default", name)
    assert volume_of_place("v", "iface-default", name).iscsi.target_portal == portal


@pytest.mark.parametrize(
    ("interface", "name"),
    [
        ("iface-default", "volumeDevices"),
        ("iface-default", f"10.0.0.1:3260-{IQN}"),
        ("iface-default", f"10.0.0.1:3260-{IQN}-lun-"),
        ("iface-default", f"10.0.0.1:3260-{IQN}-lun-x"),
        ("iface-default", f"10.0.0.1:3260-{IQN}-lun-99999999999"),
        ("iface-default", f"-{IQN}-lun-1"),
        ("iface-default", "10.0.0.1:3260-nqn.x-lun-1"),
        ("iface-default", "-" * 255),
        ("iface-", f"10.0.0.1:3260-{IQN}-lun-1"),
        ("volumeDevices", f"10.0.0.1:3260-{IQN}-lun-1"),
    ],
)
def test_other_directories_are_not_taken_for_disks(interface, name):
    with pytest.raises(VolumeSetupError, match="no place of an iSCSI disk"):
        disk_of_place(interface, name)


def test_a_record_says_all_that_detaching_needs():
    disk = IscsiDisk(
        volume="pv",
        portals=("10.0.0.1:3260", "10.0.0.2:3260"),
        iqn=IQN,
        lun=3,
        base_interface="eth",
        initiator="iqn.me",
    )
    assert json.decode(encode_record(disk)) == {
        "VolName": "pv",
        "Portals": ["10.0.0.1:3260", "10.0.0.2:3260"],
        "Iqn": IQN,
        "Lun": "3",
        "InitIface": "eth",
        "Iface": "10.0.0.1:3260:pv",
        "InitiatorName": "iqn.me",
    }
    assert decode_record(encode_record(disk)) == disk


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="no fields"),
        pytest.param(b'{"Portals":["p"],"Iqn":"iqn.x","Lun":"x"}', id="a unit that is no number"),
        pytest.param(b'{"Portals":["p"],"Iqn":"iqn.x","Lun":3}', id="a number where a text belongs"),
        pytest.param('{"Portals":["p"],"Iqn":"iqn.x","Lun":"٣"}'.encode(), id="digits of another script"),
        pytest.param(b'{"Portals":[],"Iqn":"iqn.x","Lun":"3"}', id="no portals"),
        pytest.param(b'{"Portals":["p"],"Iqn":"iqn.x","Lun":"%s"}' % (b"9" * 5000), id="a huge number"),
        pytest.param(b"\xff" * 100, id="no text"),
    ],
)
def test_what_is_no_record_is_none(data):
    assert decode_record(data) is None
