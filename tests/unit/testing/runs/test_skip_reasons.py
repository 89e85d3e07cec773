"""A test that is skipped says what is missing, and after a colon how to get it or why it cannot be had."""

import ast
from pathlib import Path

import pytest

from klet.testing.containerd import describe_missing
from klet.testing.control_plane.programs import describe_program, why_impossible

TESTS = Path(__file__).parents[3]
ROOT_REASON = "needs root: run the tests as root"


def find_reasons(tree: ast.Module):
    """The texts of `pytest.skip(…)`, `mark.skip` and `mark.skipif`, without their values."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        named = [word.value for word in node.keywords if word.arg == "reason"]
        if node.func.attr in {"skip", "skipif"} and ast.unparse(node.func).startswith("pytest."):
            yield from named or node.args[:1]


def read_reason(node: ast.expr) -> str:
    """A value stands for a reason of klet.testing, which has a test of its own."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "what: how" for part in node.values)
    return node.value if isinstance(node, ast.Constant) else "what: how"


def list_reasons():
    for path in sorted(TESTS.rglob("*.py")):
        for node in find_reasons(ast.parse(path.read_text())):
            yield pytest.param(read_reason(node), id=f"{path.relative_to(TESTS)}:{node.lineno}")


REASONS = tuple(list_reasons())


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_says_what_is_missing_and_what_to_do(reason):
    what, colon, how = reason.removeprefix("skipped: ").partition(": ")
    assert (what, colon) != ("", "")
    assert how
    assert not how.endswith(".")


@pytest.mark.parametrize("reason", [param for param in REASONS if "root" in param.values[0].split()])
def test_all_tests_for_root_give_one_reason(reason):
    assert reason.removeprefix("skipped: ") == ROOT_REASON


@pytest.mark.parametrize(
    ("installed", "is_root", "expected"),
    [
        pytest.param({"containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "CNI plugins"}, True, "", id="all"),
        pytest.param({"containerd"}, False, ROOT_REASON, id="not root"),
        pytest.param(
            {"containerd", "containerd-shim-runc-v2", "ctr"},
            True,
            "not installed: runc, ip, CNI plugins: apt-get install runc iproute2 containernetworking-plugins",
            id="some packages",
        ),
        pytest.param(
            {"runc", "ip", "CNI plugins"},
            True,
            "not installed: containerd, containerd-shim-runc-v2, ctr: apt-get install containerd",
            id="one package with three programs",
        ),
    ],
)
def test_describe_missing(installed, is_root, expected):
    assert describe_missing(is_installed=installed.__contains__, is_root=is_root) == expected


@pytest.mark.parametrize(
    ("name", "environment", "expected"),
    [
        pytest.param("kubectl", {}, "no kubectl: run scripts/upstream", id="one that is built by default"),
        pytest.param("kubeadm", {}, "no kubeadm: run scripts/upstream kubeadm", id="one that is built when asked for"),
        pytest.param("etcd", {}, "no etcd: apt-get install etcd-server, or run scripts/upstream etcd", id="etcd"),
        pytest.param(
            "kubelet",
            {"KLET_UPSTREAM_BIN": "/ready"},
            "no kubelet in KLET_UPSTREAM_BIN=/ready: put it there, or unset the variable and run scripts/upstream",
            id="a directory with ready ones",
        ),
    ],
)
def test_describe_program(name, environment, expected):
    assert describe_program(name, environment) == expected


def test_a_control_plane_names_the_first_program_that_is_missing(tmp_path):
    environment = {"KLET_CACHE": str(tmp_path)}
    assert why_impossible("kubectl", environment=environment) == "no kube-apiserver: run scripts/upstream"
