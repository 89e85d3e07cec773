import pytest

from klet.cli.node.host_ledger import HostBefore, HostLedger

BEFORE = HostBefore(switches={"net/ipv4/ip_forward": "0"}, chains={"iptables-save": ("CNI-HOSTPORT-DNAT",)})
CHANGED = HostBefore(switches={"net/ipv4/ip_forward": "1"})


@pytest.fixture
def ledger(tmp_path):
    return HostLedger(directory=tmp_path / "ledger")


@pytest.fixture
def states(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    return tmp_path / "a", tmp_path / "b"


def test_the_last_node_gets_what_the_first_one_saw(ledger, states):
    ledger.join("a", state=states[0], observe=lambda: BEFORE)
    ledger.join("b", state=states[1], observe=lambda: CHANGED)
    assert ledger.leave("a") is None
    assert ledger.leave("b") == BEFORE


def test_joining_again_changes_nothing(ledger, states):
    ledger.join("a", state=states[0], observe=lambda: BEFORE)
    ledger.join("a", state=states[0], observe=lambda: CHANGED)
    assert ledger.leave("a") == BEFORE


def test_a_node_whose_directory_was_deleted_counts_no_more(ledger, states):
    ledger.join("a", state=states[0], observe=lambda: BEFORE)
    ledger.join("b", state=states[1], observe=lambda: CHANGED)
    states[0].rmdir()
    assert ledger.leave("b") == BEFORE


def test_leaving_twice_and_closing_leave_nothing(ledger, states, tmp_path):
    assert ledger.leave("a") is None
    ledger.close()
    ledger.join("a", state=states[0], observe=lambda: BEFORE)
    assert ledger.leave("a") == BEFORE
    # A teardown that was cut short finds the note again.
    assert ledger.leave("a") == BEFORE
    ledger.close()
    assert not (tmp_path / "ledger").exists()


def test_closing_waits_for_the_last_node(ledger, states, tmp_path):
    ledger.join("a", state=states[0], observe=lambda: BEFORE)
    ledger.close()
    assert (tmp_path / "ledger").exists()
