"""What the gates decide about static pods."""

import pytest

from klet.app.pod_sources import cut_validation_options
from klet.config.command_line import Settings, parse_command_line


def given(gates: str) -> Settings:
    def missing(path: str):
        raise FileNotFoundError(path)

    arguments = ("--address=127.0.0.1", f"--feature-gates={gates}")
    parsed = parse_command_line(arguments, read_file=missing, list_dir=missing)
    assert isinstance(parsed, Settings)
    return parsed


@pytest.mark.parametrize(
    ("gates", "restart_rules", "host_network"),
    [
        pytest.param("", True, False, id="by default"),
        pytest.param("ContainerRestartRules=false", False, False, id="no restart rules"),
        pytest.param("UserNamespacesHostNetworkSupport=true", True, True, id="user namespaces in the host's network"),
    ],
)
def test_rules_for_static_pods(gates, restart_rules, host_network):
    options = cut_validation_options(given(gates))
    assert not options.resource_is_pod
    assert options.container_restart_rules is restart_rules
    assert options.user_namespaces_host_network is host_network
