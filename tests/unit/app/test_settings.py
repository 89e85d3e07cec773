"""What the parts get of the configuration."""

from datetime import timedelta
from pathlib import Path

import pytest

from klet.app.settings import LONGEST_REQUEST, STARTS_PER_CPU, check_settings, choose_legacy_logs, cut_settings
from klet.config.command_line import Settings, parse_command_line
from klet.config.errors import ConfigError
from klet.host.machine.info import MachineInfo

MACHINE = MachineInfo(hostname="Node", cpus=4, agent_cpus=2, memory=1 << 30)


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        pytest.param("/var/log/pods", "/var/log/containers", id="where upstream has it"),
        pytest.param("/tmp/node/logs", "/tmp/node/containers", id="beside the logs of a node that has them elsewhere"),
    ],
)
def test_links_to_logs(logs, expected):
    assert choose_legacy_logs(Path(logs)) == Path(expected)


def given(*arguments: str) -> Settings:
    def missing(path: str):
        raise FileNotFoundError(path)

    parsed = parse_command_line(("--address=127.0.0.1", *arguments), read_file=missing, list_dir=missing)
    assert isinstance(parsed, Settings)
    return parsed


def cut(*arguments: str):
    return cut_settings(given(*arguments), MACHINE)


def test_name_servers_that_are_none_are_left_out():
    assert cut("--cluster-dns=010.96.0.10,junk").dns.cluster_dns == ("10.96.0.10",)


def test_a_deadline_that_grpc_would_take_for_the_past_is_cut():
    assert cut("--runtime-request-timeout=2562047h").request_timeout == LONGEST_REQUEST
    assert cut("--runtime-request-timeout=3m").request_timeout == timedelta(minutes=3)


def test_starts_in_flight_go_by_the_cpus_that_the_agent_may_use():
    assert cut().parallel_starts == 2 * STARTS_PER_CPU
    assert cut("--klet-max-parallel-starts=3").parallel_starts == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--reserved-cpus=0-3", "--fail-swap-on=false"], None, id="CPUs that nobody can count"),
        pytest.param(["--cgroup-root=/a/"], None, id="a slash at the end of a path"),
        pytest.param(["--cgroups-per-qos=false", "--enforce-node-allocatable=none"], None, id="no cgroups"),
        pytest.param(["--kube-reserved=cpu=5"], "invalid Node Allocatable configuration", id="less than is reserved"),
        pytest.param(["--cgroup-root=/a_b"], 'cgroupRoot (--cgroup-root) "/a_b": invalid character in '
                     'component ["a_b"] of CgroupName', id="a cgroup that cannot be named"),
        pytest.param(["--cgroup-root=/a/", "--cgroup-driver=systemd"], 'cgroupRoot (--cgroup-root) "/a/": invalid '
                     "slice name", id="a slice that cannot be named"),
        pytest.param(["--max-pods=70000"], "maxPods (--max-pods) 70000 with userNamespaces.idsPerPod: 4294901760 ids "
                     "are too few for 70000 pods of 65536 each", id="more pods than ids"),
    ],
)  # fmt: skip
def test_what_the_machine_cannot_keep(arguments, message):
    if message is None:
        check_settings(given(*arguments), MACHINE)
        return
    with pytest.raises(ConfigError) as caught:
        check_settings(given(*arguments), MACHINE)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "servers"),
    [
        pytest.param((), (), id="none given"),
        pytest.param(("--node-ip=2001:db8::1,192.0.2.1",), ("2001:db8::1", "192.0.2.1"), id="one of each family"),
    ],
)
def test_pods_without_a_resolver_ask_the_node_in_its_families(arguments, servers):
    assert cut(*arguments).dns.node_ips == servers


def test_the_gate_of_images_for_each_handler():
    assert not cut().sandbox.names_image_handlers
    assert cut("--feature-gates=RuntimeClassInImageCriApi=true").sandbox.names_image_handlers
