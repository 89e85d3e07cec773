from pathlib import Path

import pytest

from klet.cli.node.kubelet_config import build_klet_configuration, build_kubelet_configuration, choose_resolv_conf
from klet.cli.node.paths import node_names, node_paths
from klet.cli.node.record import NodeRecord
from klet.config.files import load_configuration
from klet.config.klet import load_klet_configuration

STATE = Path("/srv/node")


def test_the_agent_accepts_the_configuration_and_it_is_safe():
    names = node_names(STATE)
    text = build_kubelet_configuration(
        paths=node_paths(STATE),
        names=names,
        record=NodeRecord(subnet="10.83.0.0/24", port=20000, healthz_port=20001),
        resolv_conf="/etc/resolv.conf",
    )
    loaded = load_configuration("/srv/node/etc/kubelet.yaml", text.encode(), flag_gates={})
    config = loaded.config
    assert loaded.warnings == ()
    assert config.static_pod_path == "/srv/node/manifests"
    assert config.container_runtime_endpoint == "unix:///srv/node/run/containerd.sock"
    assert (config.port, config.healthz_port, config.cgroup_root) == (20000, 20001, names.cgroup)
    assert (config.fail_swap_on, config.fail_cgroup_v1) == (False, False)
    assert config.seccomp_default
    assert config.pod_pids_limit == 4096
    assert (config.make_iptables_util_chains, config.protect_kernel_defaults) == (False, False)
    assert config.read_only_port == 0
    assert (config.authentication.anonymous.enabled, config.authentication.webhook.enabled) == (False, False)
    assert config.authentication.x509.client_ca_file == "/srv/node/pki/ca.crt"
    assert (config.address, config.healthz_bind_address) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("text", "systemd", "expected"),
    [
        pytest.param("nameserver 192.0.2.1\n", True, "/etc/resolv.conf", id="a server that pods can reach"),
        pytest.param(
            "nameserver 127.0.0.53\n", True, "/run/systemd/resolve/resolv.conf", id="a stub, and what is behind it"
        ),
        pytest.param("nameserver 127.0.0.53\n", False, "/etc/resolv.conf", id="a stub, and nothing behind it"),
        pytest.param("nameserver ::1\nnameserver 192.0.2.1\n", True, "/etc/resolv.conf", id="one of two is enough"),
        pytest.param("# nothing\n", True, "/etc/resolv.conf", id="no server"),
        pytest.param("nameserver fe80::1%eth0\n", True, "/etc/resolv.conf", id="with a zone"),
        pytest.param("nameserver nonsense\n", True, "/etc/resolv.conf", id="not an address"),
    ],
)
def test_choose_resolv_conf(text, systemd, expected):
    assert choose_resolv_conf(text, has_systemd_resolv_conf=systemd) == expected


def test_the_agent_accepts_the_configuration():
    text = build_klet_configuration(handlers=("runc", "crun"))
    classes = load_klet_configuration("/srv/node/etc/klet.yaml", text.encode()).runtime_classes
    assert [(each.metadata.name, each.handler) for each in classes] == [("runc", "runc"), ("crun", "crun")]
