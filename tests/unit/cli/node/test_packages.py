from pathlib import Path

import pytest

from klet.cli.node.packages import (
    REQUIREMENTS,
    Install,
    Missing,
    Ready,
    choose_cni_directory,
    find_programs,
    install_commands,
    plan_packages,
)

ALL = {program: Path("/usr/bin") / program for requirement in REQUIREMENTS for program in requirement.programs}


@pytest.mark.parametrize(
    ("missing", "may", "apt", "root", "expected"),
    [
        pytest.param((), True, True, True, Ready(), id="nothing is missing"),
        pytest.param((), False, False, False, Ready(), id="nothing is missing, so nobody has to be allowed"),
        pytest.param(("runc",), True, True, True, Install(("runc",)), id="one program, its package"),
        pytest.param(("portmap",), True, True, True, Install(("containernetworking-plugins",)), id="half a package"),
        pytest.param(
            ("ctr", "iptables"), True, True, True, Install(("containerd", "iptables")), id="several, in a fixed order"
        ),
        pytest.param(
            ("runc",), False, True, True, Missing(("runc",), "--no-install was given"), id="the user forbids it"
        ),
        pytest.param(("runc",), True, True, False, Missing(("runc",), "only root may install packages"), id="not root"),
    ],
)
def test_plan_packages(missing, may, apt, root, expected):
    found = {**ALL, **dict.fromkeys(missing)}
    assert plan_packages(found, may_install=may, has_apt=apt, is_root=root) == expected


def test_without_apt_the_user_has_to_bring_the_programs():
    plan = plan_packages({}, may_install=True, has_apt=False, is_root=True)
    assert isinstance(plan, Missing)
    assert plan.packages == tuple(requirement.package for requirement in REQUIREMENTS)
    assert "apt-get" in plan.reason


def test_a_directory_with_half_of_the_plugins_is_passed_over():
    def has_plugin(path: Path) -> bool:
        return path.parent == Path("/opt/cni/bin") or path.name == "bridge"

    assert choose_cni_directory(has_plugin) == Path("/opt/cni/bin")
    assert choose_cni_directory(lambda _: False) is None


def test_find_programs_asks_the_path_for_programs_and_the_plugin_directory_for_plugins():
    found = find_programs(lambda name: Path("/sbin") / name, lambda path: path.parent == Path("/usr/lib/cni"))
    assert found["runc"] == Path("/sbin/runc")
    assert found["portmap"] == Path("/usr/lib/cni/portmap")
    assert plan_packages(found, may_install=False, has_apt=False, is_root=False) == Ready()


def test_install_commands_refresh_the_index_first():
    assert install_commands(("runc",)) == (
        ("apt-get", "update", "-qq"),
        ("apt-get", "install", "-qq", "-y", "--no-install-recommends", "runc"),
    )
