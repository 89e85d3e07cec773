"""The calls of iscsiadm."""

import pytest

from klet.volumes.errors import VolumeSetupError
from klet.volumes.iscsi.commands import device_pattern, plan_login, plan_logout, read_interface
from klet.volumes.iscsi.disk import IscsiDisk

PORTAL, IQN = "10.0.0.1:3260", "iqn.2030-01.example:disks"
DATABASE = ["-m", "discoverydb", "-t", "sendtargets", "-p", PORTAL, "-I", "default"]
NODE = ["-m", "node", "-p", PORTAL, "-T", IQN, "-I", "default"]
SECRET = {
    "discovery.sendtargets.auth.username": b"du",
    "discovery.sendtargets.auth.password": b"dp",
    "node.session.auth.username": b"nu",
    "node.session.auth.password": b"np",
    "node.session.auth.username_in": b"",
    "node.session.auth.password_in": b"npi",
    "node.session.iscsi.InitialR2T": b"Yes",
}


def make_disk(**fields):
    return IscsiDisk(**{"volume": "v", "portals": (PORTAL,), "iqn": IQN, "lun": 3, **fields})


def arguments(disk, secret):
    return [list(step.arguments) for step in plan_login(disk, PORTAL, secret)]


def test_login_without_chap():
    assert arguments(make_disk(), SECRET) == [
        [*DATABASE, "-o", "new"],
        [*DATABASE, "--discover"],
        [*NODE, "-o", "update", "-n", "node.session.scan", "-v", "manual"],
        [*NODE, "--login"],
        ["-m", "node", "-p", PORTAL, "-T", IQN, "-o", "update", "-n", "node.startup", "-v", "manual"],
    ]


def test_only_the_settings_of_chap_that_are_set_are_taken_from_the_secret():
    update, session = [*DATABASE, "-o", "update", "-n"], [*NODE, "-o", "update", "-n"]
    assert arguments(make_disk(chap_discovery=True, chap_session=True), SECRET) == [
        [*DATABASE, "-o", "new"],
        [*update, "discovery.sendtargets.auth.authmethod", "-v", "CHAP"],
        [*update, "discovery.sendtargets.auth.username", "-v", "du"],
        [*update, "discovery.sendtargets.auth.password", "-v", "dp"],
        [*DATABASE, "--discover"],
        [*session, "node.session.scan", "-v", "manual"],
        [*session, "node.session.auth.authmethod", "-v", "CHAP"],
        [*session, "node.session.auth.username", "-v", "nu"],
        [*session, "node.session.auth.password", "-v", "np"],
        [*session, "node.session.auth.password_in", "-v", "npi"],
        [*NODE, "--login"],
        ["-m", "node", "-p", PORTAL, "-T", IQN, "-o", "update", "-n", "node.startup", "-v", "manual"],
    ]


def test_no_failure_and_nothing_undone_shows_a_secret():
    for step in plan_login(make_disk(chap_discovery=True, chap_session=True), PORTAL, SECRET):
        assert not {"du", "dp", "nu", "np", "npi"} & {*step.undo, *step.failure.split()}


@pytest.mark.parametrize("value", [b"\xff", b"a\0b"])
def test_a_secret_that_cannot_be_an_argument_is_refused(value):
    with pytest.raises(VolumeSetupError, match=r"node.session.auth.password"):
        plan_login(make_disk(chap_session=True), PORTAL, {"node.session.auth.password": value})


def test_which_steps_end_the_login_and_what_they_undo():
    steps = plan_login(make_disk(), PORTAL, {})
    assert [(step.arguments[-1], bool(step.failure), list(step.undo)) for step in steps] == [
        ("new", False, []),
        ("--discover", True, [*DATABASE, "-o", "delete"]),
        ("manual", False, []),
        ("--login", True, ["-m", "node", "-p", PORTAL, "-I", "default", "-T", IQN, "-o", "delete"]),
        ("manual", False, []),
    ]


def test_logout_of_every_portal_and_of_the_interface_that_was_made():
    disk = make_disk(portals=(PORTAL, "10.0.0.2:3260"), initiator="iqn.me")
    own = f"{PORTAL}:v"
    assert [list(call) for call in plan_logout(disk)] == [
        ["-m", "node", "-p", PORTAL, "-T", IQN, "--logout", "-I", own],
        ["-m", "node", "-p", PORTAL, "-T", IQN, "-o", "delete", "-I", own],
        ["-m", "node", "-p", "10.0.0.2:3260", "-T", IQN, "--logout", "-I", own],
        ["-m", "node", "-p", "10.0.0.2:3260", "-T", IQN, "-o", "delete", "-I", own],
        ["-m", "iface", "-I", own, "-o", "delete"],
    ]


def test_the_interface_of_the_administrator_is_kept():
    assert [call[1] for call in plan_logout(make_disk())] == ["node", "node"]


def test_settings_of_an_interface():
    output = b"""# BEGIN RECORD 2.1.8
iface.iscsi_ifacename = default
iface.net_ifacename = <empty>
iface.transport_name = tcp
iface.initiatorname = <empty>
iface.mtu = 0
iface.x = a b
; rm -rf = no
# END RECORD
"""
    assert read_interface(output) == {"iface.transport_name": "tcp", "iface.mtu": "0"}


@pytest.mark.parametrize(
    ("transport", "name", "matches"),
    [
        pytest.param("tcp", f"ip-{PORTAL}-iscsi-{IQN}-lun-3", True, id="tcp"),
        pytest.param("tcp", f"ip-{PORTAL}-iscsi-{IQN}-lun-30", False, id="another unit"),
        pytest.param("tcp", f"ip-{PORTAL}-iscsi-{IQN}-lun-3-part1", False, id="a partition"),
        pytest.param("tcp", f"ip-10x0.0.1:3260-iscsi-{IQN}-lun-3", False, id="a dot is only a dot"),
        pytest.param("tcp", f"pci-0000:04:00.2-ip-{PORTAL}-iscsi-{IQN}-lun-3", False, id="a card, but tcp is wanted"),
        pytest.param("bnx2i", f"pci-0000:04:00.2-ip-{PORTAL}-iscsi-{IQN}-lun-3", True, id="a card"),
        pytest.param("bnx2i", f"ip-{PORTAL}-iscsi-{IQN}-lun-3", False, id="tcp, but a card is wanted"),
    ],
)
def test_the_device_of_a_disk(transport, name, matches):
    assert bool(device_pattern(make_disk(), PORTAL, transport=transport).fullmatch(name)) is matches


def test_an_interface_without_transport_is_an_error():
    with pytest.raises(VolumeSetupError, match="could not parse iface file for default"):
        device_pattern(make_disk(), PORTAL, transport="")
