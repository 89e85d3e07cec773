from ipaddress import IPv4Network, IPv6Network

import pytest

from klet.cli.node.record import DamagedRecord, NodeRecord, choose_ports, read_record, write_record

RECORD = NodeRecord(subnet="10.83.0.0/24", subnet6="fd00::/64", port=1, healthz_port=2)


def test_a_record_survives(tmp_path):
    path = tmp_path / "node.json"
    assert read_record(path) is None
    write_record(path, RECORD)
    assert read_record(path) == RECORD
    assert RECORD.subnets() == (IPv4Network("10.83.0.0/24"), IPv6Network("fd00::/64"))


def test_a_damaged_record_names_the_file(tmp_path):
    path = tmp_path / "node.json"
    path.write_text('{"port": "x"}')
    with pytest.raises(DamagedRecord, match=f"{path}.*--purge"):
        read_record(path)


@pytest.mark.parametrize(
    ("taken", "is_default", "expected"),
    [
        pytest.param((), True, (100, 101), id="free"),
        pytest.param((100,), True, None, id="the default node does not move"),
        pytest.param((101,), False, (102, 103), id="another node takes the next pair"),
        pytest.param((100, 103), False, (104, 105), id="a pair is free only as a whole"),
        pytest.param(range(100, 110), False, None, id="nothing is free"),
    ],
)
def test_choose_ports(taken, is_default, expected):
    free = {port: port not in taken for port in range(100, 110)}
    assert choose_ports(100, 101, is_free=free, is_default=is_default) == expected
