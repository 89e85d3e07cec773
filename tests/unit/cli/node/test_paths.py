from pathlib import Path

import pytest

from klet.cli.node.paths import DEFAULT_STATE, node_names, node_paths, state_directory_problem


def test_the_default_node_has_plain_names_and_upstreams_ports():
    names = node_names(DEFAULT_STATE)
    assert (names.bridge, names.network, names.cgroup) == ("klet0", "klet", "/klet")
    assert (names.port, names.healthz_port) == (10250, 10248)
    assert node_paths(DEFAULT_STATE).containerd_socket == Path("/run/klet/containerd.sock")


def test_another_state_directory_shares_nothing_with_the_default_one():
    paths, names = node_paths(Path("/tmp/a")), node_names(Path("/tmp/a"))
    default = node_names(DEFAULT_STATE)
    assert paths.run == Path("/tmp/a/run")
    for field in ("bridge", "network", "cgroup", "port", "healthz_port"):
        assert getattr(names, field) != getattr(default, field)
    assert names != node_names(Path("/tmp/b"))


@pytest.mark.parametrize("state", ["/tmp/a", "/srv/some/longer/path", "/x"])
def test_the_bridge_fits_the_kernels_limit_and_ports_stay_below_the_ephemeral_range(state):
    names = node_names(Path(state))
    assert len(names.bridge) <= 15
    assert 20000 <= names.port < names.healthz_port < 32768


@pytest.mark.parametrize(
    ("length", "fits"),
    [
        pytest.param(81, True, id="the longest that fits"),
        pytest.param(82, False, id="one more does not"),
    ],
)
def test_sockets_limit_the_length_of_the_state_directory(length, fits):
    problem = state_directory_problem(Path("/" + "s" * (length - 1)))
    assert (problem is None) is fits
    assert fits or "1 characters too long" in problem
