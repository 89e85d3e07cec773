import json
from ipaddress import ip_network

from klet.host.cni import build_cni_list


def test_a_dual_stack_bridge():
    subnets = [ip_network("10.85.0.0/24"), ip_network("fd00:85::/64")]
    text = build_cni_list(name="klet", bridge="klet0", subnets=subnets, data_dir="/d/leases", mtu=1400)
    config = json.loads(text)
    assert [plugin["type"] for plugin in config["plugins"]] == ["bridge", "portmap", "bandwidth"]
    bridge = config["plugins"][0]
    assert (bridge["bridge"], bridge["mtu"], bridge["ipMasq"]) == ("klet0", 1400, True)
    assert bridge["ipam"] == {
        "type": "host-local",
        "dataDir": "/d/leases",
        "ranges": [[{"subnet": "10.85.0.0/24"}], [{"subnet": "fd00:85::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    }


def test_unset_options_are_left_out():
    text = build_cni_list(name="klet", bridge="klet0", subnets=[ip_network("10.85.0.0/24")], masquerade=False)
    bridge = json.loads(text)["plugins"][0]
    assert bridge["ipMasq"] is False
    assert "mtu" not in bridge
    assert "dataDir" not in bridge["ipam"]
