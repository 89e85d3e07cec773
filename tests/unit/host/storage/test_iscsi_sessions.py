"""Sessions of iSCSI in a sysfs that a builder made."""

import pytest

from klet.host.storage.iscsi_sessions import IscsiSessions, join_portal
from klet.testing.storage import DiskTrees

IQN = "iqn.2030-01.example:disks"


@pytest.fixture
def trees(tmp_path):
    return DiskTrees(tmp_path)


@pytest.fixture
def sessions(trees):
    return IscsiSessions(sys=trees.sys)


@pytest.mark.parametrize(
    ("address", "expected"), [("10.0.0.1", "10.0.0.1:3260"), ("fe80::1", "[fe80::1]:3260"), ("host", "host:3260")]
)
def test_portals(address, expected):
    assert join_portal(address, "3260") == expected


def test_hosts_are_found_by_target_and_portal(trees, sessions):
    trees.add_session(3, IQN, address="10.0.0.1")
    trees.add_session(4, IQN, address="fe80::1", port="860")
    trees.add_session(5, f"{IQN}.other", address="10.0.0.1")
    assert sessions.portal_hosts(IQN) == {"10.0.0.1:3260": 3, "[fe80::1]:860": 4}
    assert sessions.portal_hosts("iqn.2030-01.example:none") == {}


def test_disks_of_a_target_by_logical_unit(trees, sessions):
    trees.add_session(3, IQN, address="10.0.0.1", disks=[(0, "sda"), (1, "sdb")])
    trees.add_session(4, IQN, address="10.0.0.2", disks=[(0, "sdc")])
    trees.add_session(5, f"{IQN}.other", address="10.0.0.1", disks=[(0, "sdd")])
    assert sessions.disks(IQN) == {0: ("sda", "sdc"), 1: ("sdb",)}


def test_a_session_that_is_going_away_is_skipped(trees, sessions):
    trees.add_session(3, IQN, address="10.0.0.1")
    [name] = trees.session_place(3).glob("device/session3/iscsi_session/session3/targetname")
    name.unlink()
    assert sessions.portal_hosts(IQN) == {}


def test_a_machine_without_iscsi_has_no_sessions(tmp_path):
    assert IscsiSessions(sys=tmp_path / "no").portal_hosts(IQN) == {}
