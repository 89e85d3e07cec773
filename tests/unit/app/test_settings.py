"""What the parts get of the configuration."""

from datetime import timedelta
from pathlib import Path

import pytest

from klet.app.settings import LONGEST_REQUEST, STARTS_PER_CPU, choose_legacy_logs, cut_settings
from klet.config.command_line import Settings, parse_command_line
from klet.host.machine.info import MachineInfo


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        pytest.param("/var/log/pods", "/var/log/containers", id="where upstream has it"),
        pytest.param("/tmp/node/logs", "/tmp/node/containers", id="beside the logs of a node that has them elsewhere"),
    ],
)
def test_links_to_logs(logs, expected):
    assert choose_legacy_logs(Path(logs)) == Path(expected)


def cut(*arguments: str):
    def missing(path: str):
        raise FileNotFoundError(path)

    parsed = parse_command_line(("--address=127.0.0.1", *arguments), read_file=missing, list_dir=missing)
    assert isinstance(parsed, Settings)
    return cut_settings(parsed, MachineInfo(hostname="Node", cpus=4, agent_cpus=2, memory=1 << 30))


def test_name_servers_that_are_none_are_left_out():
    assert cut("--cluster-dns=010.96.0.10,junk").dns.cluster_dns == ("10.96.0.10",)


def test_a_deadline_that_grpc_would_take_for_the_past_is_cut():
    assert cut("--runtime-request-timeout=2562047h").request_timeout == LONGEST_REQUEST
    assert cut("--runtime-request-timeout=3m").request_timeout == timedelta(minutes=3)


def test_starts_in_flight_go_by_the_cpus_that_the_agent_may_use():
    assert cut().parallel_starts == 2 * STARTS_PER_CPU
    assert cut("--klet-max-parallel-starts=3").parallel_starts == 3
