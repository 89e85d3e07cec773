import pytest

from klet.api.sysctls import IPC, NET, SAFE_SYSCTLS, matches_sysctl, namespace_of, normalize_sysctl


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("kernel.shm_rmid_forced", "kernel.shm_rmid_forced", id="dots stay"),
        pytest.param("net/ipv4/ip_forward", "net.ipv4.ip_forward", id="slashes become dots"),
        pytest.param("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter", id="and dots slashes"),
    ],
)
def test_names(name, expected):
    assert normalize_sysctl(name) == expected


@pytest.mark.parametrize(
    ("sysctl", "expected"),
    [
        ("net.core.somaxconn", NET),
        ("net.*", NET),
        ("kernel.sem", IPC),
        ("kernel.msgmax", IPC),
        ("kernel.shm*", IPC),
        ("fs.mqueue.msg_max", IPC),
        ("kernel.panic", None),
        ("kernel.*", None),
        ("vm.swappiness", None),
        ("network.x", None),
    ],
)
def test_namespaces(sysctl, expected):
    assert namespace_of(sysctl) == expected


def test_what_is_safe_belongs_to_a_namespace():
    assert all(namespace_of(sysctl) is not None for sysctl in SAFE_SYSCTLS)


@pytest.mark.parametrize(
    ("sysctl", "pattern", "expected"),
    [
        pytest.param("net.core.somaxconn", "net.core.somaxconn", True, id="itself"),
        pytest.param("net.core.somaxconn", "net.core.*", True, id="what begins so"),
        pytest.param("net.core.somaxconn", "net.core", False, id="only with a star"),
        pytest.param("net.ipv4.ip_forward", "net.core.*", False, id="another"),
    ],
)
def test_patterns(sysctl, pattern, expected):
    assert matches_sysctl(sysctl, pattern) is expected
