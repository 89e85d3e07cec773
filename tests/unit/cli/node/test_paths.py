from pathlib import Path

import pytest

from klet.cli.node.paths import DEFAULT_STATE, foreign_entries, node_names, node_paths, state_directory_problem


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
        pytest.param(78, True, id="the longest that fits"),
        pytest.param(79, False, id="one more does not"),
    ],
)
def test_sockets_limit_the_length_of_the_state_directory(length, fits):
    problem = state_directory_problem(Path("/" + "s" * (length - 1)))
    assert (problem is None) is fits
    assert fits or "1 bytes too long" in problem


def test_the_length_of_the_state_directory_counts_in_bytes():
    assert state_directory_problem(Path("/" + "é" * 38)) is None
    assert "1 bytes too long" in (state_directory_problem(Path("/" + "é" * 39)) or "")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a\nb", id="a line break"),
        pytest.param("a\x1b[31m", id="an escape"),
        pytest.param("a\u2028b", id="a separator of lines"),
        pytest.param("a\udcff", id="bytes that are not UTF-8"),
        pytest.param("a\x7f", id="delete"),
    ],
)
def test_a_state_directory_that_no_file_can_name_is_refused(name):
    assert "cannot name it; give another directory" in (state_directory_problem(Path("/srv") / name) or "")


@pytest.mark.parametrize("name", ["a b", "50%", "$HOME", 'a"b', "a\\", "é"])
def test_a_state_directory_with_a_strange_name_is_fine(name):
    assert state_directory_problem(Path("/srv") / name) is None


@pytest.mark.parametrize(
    ("entries", "foreign"),
    [
        pytest.param([], [], id="an empty directory"),
        pytest.param(["etc", "run", "log", "manifests"], [], id="a node whose start was cut short"),
        pytest.param([".node.json.0123456789ab", "lost+found"], [], id="what a killed write or a new disk leaves"),
        pytest.param(["usr", "etc", "run"], ["usr"], id="the root of the machine"),
        pytest.param([".ssh", ".profile", "node.json"], [".profile", ".ssh"], id="someone's home"),
    ],
)
def test_what_is_not_of_the_node(entries, foreign):
    assert foreign_entries(node_paths(Path("/s")), entries) == foreign
