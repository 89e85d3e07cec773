"""klet's own network, where there is no other one."""

import json
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from klet.aio.threads import Threads
from klet.node.bridge_network import (
    DEFAULT_DIRECTORY,
    FILE,
    BadCidr,
    BridgeNames,
    BridgeNetwork,
    find_cni_directory,
    parse_cidrs,
    write_network,
)
from klet.wire import cri_v1_pb2 as cri

SUBNETS = (ip_network("10.1.2.0/24"), ip_network("fd01::/64"))
NAMES = BridgeNames()


def test_the_standard_plugins_make_the_network(tmp_path):
    assert write_network(tmp_path / "net.d", SUBNETS, NAMES) is True
    config = json.loads((tmp_path / "net.d" / FILE).read_text())
    assert config["name"] == "klet-bridge"
    assert [plugin["type"] for plugin in config["plugins"]] == ["bridge", "portmap", "bandwidth", "loopback"]
    bridge = config["plugins"][0]
    assert (bridge["bridge"], bridge["ipMasq"], bridge["isGateway"]) == ("cbr0", True, True)
    assert bridge["ipam"]["type"] == "host-local"
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.1.2.0/24"}], [{"subnet": "fd01::/64"}]]
    assert (tmp_path / "net.d" / FILE).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["05-calico.conflist", "99-other.conf", "x.json"])
def test_the_network_of_others_wins(tmp_path, name):
    (tmp_path / name).write_text("{}")
    assert write_network(tmp_path, SUBNETS, NAMES) is False
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_our_own_is_rewritten_and_other_files_do_not_count(tmp_path):
    (tmp_path / "README").write_text("")
    write_network(tmp_path, SUBNETS, NAMES)
    assert write_network(tmp_path, SUBNETS[:1], NAMES) is True
    assert "fd01" not in (tmp_path / FILE).read_text()


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param({"config": '{"cni": {"confDir": "/x/net.d"}}'}, Path("/x/net.d"), id="the runtime says it"),
        pytest.param({}, DEFAULT_DIRECTORY, id="it says nothing"),
        pytest.param({"config": "{"}, DEFAULT_DIRECTORY, id="it says nothing that can be read"),
        pytest.param({"config": "[]"}, DEFAULT_DIRECTORY, id="it says something else"),
        pytest.param({"config": '{"cni": {"confDir": ""}}'}, DEFAULT_DIRECTORY, id="it says an empty path"),
    ],
)
def test_find_cni_directory(info, expected):
    assert find_cni_directory(cri.StatusResponse(info=info)) == expected


def test_cidrs():
    assert parse_cidrs(("10.1.2.0/24", "fd01::/64")) == SUBNETS
    with pytest.raises(BadCidr, match=r"spec\.podCIDRs of the node: "):
        parse_cidrs(("ten",))


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(limit=1)
    yield made
    made.close()


class TellingRuntime:
    def __init__(self, directory):
        self.directory = directory

    async def status(self, request):
        assert request.verbose
        return cri.StatusResponse(info={"config": json.dumps({"cni": {"confDir": str(self.directory)}})})


async def test_it_is_written_where_the_runtime_looks(tmp_path, threads):
    await BridgeNetwork(runtime=TellingRuntime(tmp_path), names=NAMES, threads=threads).use(("10.1.2.0/24",))
    assert (tmp_path / FILE).exists()
