"""The variables by which containers find services."""

import pytest

from klet.api.meta import ObjectMeta
from klet.api.service import Service, ServicePort, ServiceSpec
from klet.runtime.environment.service_env import build_service_environment

HTTPS = ServicePort(name="https", port=443, protocol="TCP")


def service(name: str, *, namespace: str = "shop", ip: str = "10.0.0.7", ports: tuple[ServicePort, ...] = (HTTPS,)):
    return Service(metadata=ObjectMeta(name=name, namespace=namespace), spec=ServiceSpec(cluster_ip=ip, ports=ports))


def test_the_variables_of_a_service_with_two_ports():
    ports = (ServicePort(name="sql", port=3306, protocol="TCP"), ServicePort(name="adm", port=53, protocol="UDP"))
    made = build_service_environment([service("my-db", ports=ports)], namespace="shop", with_links=True)
    assert made == {
        "MY_DB_SERVICE_HOST": "10.0.0.7",
        "MY_DB_SERVICE_PORT": "3306",
        "MY_DB_SERVICE_PORT_SQL": "3306",
        "MY_DB_SERVICE_PORT_ADM": "53",
        "MY_DB_PORT": "tcp://10.0.0.7:3306",
        "MY_DB_PORT_3306_TCP": "tcp://10.0.0.7:3306",
        "MY_DB_PORT_3306_TCP_PROTO": "tcp",
        "MY_DB_PORT_3306_TCP_PORT": "3306",
        "MY_DB_PORT_3306_TCP_ADDR": "10.0.0.7",
        "MY_DB_PORT_53_UDP": "udp://10.0.0.7:53",
        "MY_DB_PORT_53_UDP_PROTO": "udp",
        "MY_DB_PORT_53_UDP_PORT": "53",
        "MY_DB_PORT_53_UDP_ADDR": "10.0.0.7",
    }


def test_an_address_of_version_6_has_brackets_in_urls_only():
    ports = (ServicePort(port=80),)
    made = build_service_environment([service("web", ip="fd00::7", ports=ports)], namespace="shop", with_links=True)
    assert made == {
        "WEB_SERVICE_HOST": "fd00::7",
        "WEB_SERVICE_PORT": "80",
        "WEB_PORT": "tcp://[fd00::7]:80",
        "WEB_PORT_80_TCP": "tcp://[fd00::7]:80",
        "WEB_PORT_80_TCP_PROTO": "tcp",
        "WEB_PORT_80_TCP_PORT": "80",
        "WEB_PORT_80_TCP_ADDR": "fd00::7",
    }


def hosts(services: list[Service], *, with_links: bool = True) -> dict[str, str]:
    made = build_service_environment(services, namespace="shop", with_links=with_links)
    return {name: value for name, value in made.items() if name.endswith("_SERVICE_HOST")}


MASTER = service("kubernetes", namespace="default", ip="10.0.0.1")
OWN = service("kubernetes", ip="10.0.0.9")


@pytest.mark.parametrize(
    ("services", "with_links", "expected"),
    [
        pytest.param([], True, {}, id="none"),
        pytest.param([service("a")], True, {"A_SERVICE_HOST": "10.0.0.7"}, id="one of the pod's namespace"),
        pytest.param([service("a")], False, {}, id="without links"),
        pytest.param([MASTER], False, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, id="the API server's, always"),
        pytest.param([service("a", namespace="other")], True, {}, id="one of another namespace"),
        pytest.param([service("a", namespace="default")], True, {}, id="another one of the API server's namespace"),
        pytest.param([service("a", ip="None")], True, {}, id="a headless one"),
        pytest.param([service("a", ip="")], True, {}, id="one without an address"),
        pytest.param([MASTER, OWN], True, {"KUBERNETES_SERVICE_HOST": "10.0.0.9"}, id="the namespace's own wins"),
        pytest.param([OWN, MASTER], True, {"KUBERNETES_SERVICE_HOST": "10.0.0.9"}, id="in whatever order"),
        pytest.param([OWN, MASTER], False, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, id="but only with links"),
    ],
)
def test_which_services_count(services, with_links, expected):
    assert hosts(services, with_links=with_links) == expected
