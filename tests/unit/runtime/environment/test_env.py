"""A container's environment: order, expansion, references."""

import pytest
from msgspec.structs import replace

from klet.api.container import (
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    FileKeySelector,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretEnvSource,
    SecretKeySelector,
)
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.service import Service, ServicePort, ServiceSpec
from klet.errors import KletError
from klet.host.errors import HostError
from klet.model.allocation import PodAllocation
from klet.model.objects import ObjectMissing
from klet.runtime.environment.env import EnvironmentInputs, build_environment, build_service_environment
from klet.runtime.environment.env_files import read_env_file
from klet.runtime.errors import StartError
from klet.testing.builders import make_container, make_pod

POD = make_pod(name="web", uid="u-1")
INPUTS = EnvironmentInputs(
    allocation=PodAllocation(),
    pod_ips=("10.0.0.1",),
    config_maps={
        "app": {"COLOR": "red", "SIZE": "5"},
        "more": {"COLOR": "blue"},
        "gone": ObjectMissing('configmap "gone" not found'),
        "broken": KletError("the server is on fire"),
    },
    secrets={"key": {"PASSWORD": b"s3cret", "RAW": b"\xff"}, "gone": ObjectMissing('secret "gone" not found')},
    files={
        ("vars", "app.env"): read_env_file(b"NAME='Ada'\nEMPTY=''\n", {"NAME", "EMPTY", "OTHER"}),
        ("vars", "bad.env"): read_env_file(b"NAME=Ada\n", {"NAME"}),
        ("vars", "gone.env"): HostError("cannot open gone.env"),
    },
    services=(
        Service(
            metadata=ObjectMeta(name="db", namespace="default"),
            spec=ServiceSpec(cluster_ip="10.9.0.1", ports=(ServicePort(port=5432, protocol="TCP"),)),
        ),
    ),
    allocatable={"cpu": Quantity.parse("4")},
)
NO_SERVICES = replace(POD, spec=replace(POD.spec, enable_service_links=False))
HTTPS = ServicePort(name="https", port=443, protocol="TCP")


def built(
    *variables: EnvVar, env_from: tuple[EnvFromSource, ...] = (), pod: Pod = NO_SERVICES, inputs=INPUTS
) -> dict[str, str]:
    return build_environment(pod, replace(make_container("c"), env=variables, env_from=env_from), inputs)


def config_map(name: str, *, prefix: str = "", optional: bool | None = None) -> EnvFromSource:
    return EnvFromSource(prefix=prefix, config_map_ref=ConfigMapEnvSource(name=name, optional=optional))


def secret(name: str, *, prefix: str = "", optional: bool | None = None) -> EnvFromSource:
    return EnvFromSource(prefix=prefix, secret_ref=SecretEnvSource(name=name, optional=optional))


def refers(name: str = "V", **source) -> EnvVar:
    return EnvVar(name=name, value_from=EnvVarSource(**source))


def map_key(name: str, key: str, *, optional: bool | None = None) -> EnvVar:
    return refers(config_map_key_ref=ConfigMapKeySelector(name=name, key=key, optional=optional))


def secret_key(name: str, key: str, *, optional: bool | None = None) -> EnvVar:
    return refers(secret_key_ref=SecretKeySelector(name=name, key=key, optional=optional))


def file_key(path: str, key: str, *, volume: str = "vars", optional: bool | None = None) -> EnvVar:
    return refers(file_key_ref=FileKeySelector(volume_name=volume, path=path, key=key, optional=optional))


def test_variables_see_those_before_them_and_later_ones_win():
    made = built(
        EnvVar(name="A", value="$(B)"),
        EnvVar(name="B", value="1"),
        EnvVar(name="C", value="$(B)-$(A)"),
        EnvVar(name="B", value="2"),
        EnvVar(name="EMPTY"),
    )
    assert made == {"A": "$(B)", "B": "2", "C": "1-$(B)", "EMPTY": ""}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param((config_map("app"),), {"COLOR": "red", "SIZE": "5"}, id="a config map"),
        pytest.param((config_map("app", prefix="P_"),), {"P_COLOR": "red", "P_SIZE": "5"}, id="with a prefix"),
        pytest.param((config_map("app"), config_map("more")), {"COLOR": "blue", "SIZE": "5"}, id="later ones win"),
        pytest.param((secret("key"),), {"PASSWORD": "s3cret", "RAW": "\udcff"}, id="a secret"),
        pytest.param((config_map("gone", optional=True), config_map("more")), {"COLOR": "blue"}, id="an optional map"),
        pytest.param((secret("gone", optional=True),), {}, id="an optional secret"),
        pytest.param((EnvFromSource(prefix="P_"),), {}, id="nothing at all"),
    ],
)
def test_whole_objects(sources, expected):
    assert built(env_from=sources) == expected


def test_variables_come_after_whole_objects_and_may_refer_to_them():
    made = built(
        EnvVar(name="SIZE", value="$(SIZE)0"),
        EnvVar(name="TEXT", value="$(COLOR) $(SIZE)"),
        env_from=(config_map("app"),),
    )
    assert made == {"COLOR": "red", "SIZE": "50", "TEXT": "red 50"}


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param(map_key("app", "COLOR"), {"V": "red"}, id="a key of a config map"),
        pytest.param(secret_key("key", "PASSWORD"), {"V": "s3cret"}, id="a key of a secret"),
        pytest.param(map_key("app", "NONE", optional=True), {}, id="an optional key"),
        pytest.param(map_key("gone", "NONE", optional=True), {}, id="an optional config map"),
        pytest.param(secret_key("key", "NONE", optional=True), {}, id="an optional key of a secret"),
        pytest.param(secret_key("gone", "NONE", optional=True), {}, id="an optional secret"),
        pytest.param(file_key("app.env", "NAME"), {"V": "Ada"}, id="a key of a file"),
        pytest.param(file_key("app.env", "NONE", optional=True), {}, id="an optional key of a file"),
        pytest.param(file_key("app.env", "EMPTY", optional=True), {}, id="an empty value of a file is none"),
        pytest.param(
            refers(field_ref=ObjectFieldSelector(field_path="metadata.name", api_version="v1")),
            {"V": "web"},
            id="field",
        ),
        pytest.param(
            refers(resource_field_ref=ResourceFieldSelector(resource="limits.cpu")), {"V": "4"}, id="a resource"
        ),
        pytest.param(refers(), {"V": ""}, id="a reference to nothing"),
    ],
)
def test_references(variable, expected):
    assert built(variable) == expected


def test_an_optional_reference_leaves_what_was_there():
    wanted = ConfigMapKeySelector(name="app", key="NONE", optional=True)
    made = built(refers("COLOR", config_map_key_ref=wanted), env_from=(config_map("more"),))
    assert made == {"COLOR": "blue"}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        pytest.param(map_key("app", "NONE"), "couldn't find key NONE in ConfigMap default/app", id="a missing key"),
        pytest.param(secret_key("key", "NONE"), "couldn't find key NONE in Secret default/key", id="of a secret"),
        pytest.param(map_key("gone", "K"), 'configmap "gone" not found', id="a missing config map"),
        pytest.param(secret_key("gone", "K"), 'secret "gone" not found', id="a missing secret"),
        pytest.param(
            map_key("broken", "K", optional=True), "the server is on fire", id="optional does not mean unreadable"
        ),
        pytest.param(
            file_key("app.env", "NONE"),
            'environment variable key "NONE" not found in file "app.env"',
            id="a missing key of a file",
        ),
        pytest.param(
            file_key("app.env", "EMPTY"),
            'environment variable key "EMPTY" not found in file "app.env"',
            id="an empty value of a file",
        ),
        pytest.param(file_key("bad.env", "NAME"), "couldn't parse env file", id="a bad file"),
        pytest.param(
            file_key("gone.env", "NAME", optional=True),
            "couldn't parse env file",
            id="a missing file, even if optional",
        ),
        pytest.param(
            file_key("app.env", "NAME", volume="x"),
            'cannot find the volume "x" referenced by FileKeyRef',
            id="a missing volume",
        ),
        pytest.param(
            refers(field_ref=ObjectFieldSelector(field_path="metadata.name", api_version="v2")),
            "unsupported pod version: v2",
            id="another version of the pod",
        ),
    ],
)
def test_references_that_fail(variable, message):
    with pytest.raises(StartError) as caught:
        built(variable)
    assert (caught.value.reason, caught.value.message) == ("CreateContainerConfigError", message)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(config_map("gone"), 'configmap "gone" not found', id="a missing config map"),
        pytest.param(secret("gone"), 'secret "gone" not found', id="a missing secret"),
        pytest.param(config_map("broken", optional=True), "the server is on fire", id="an unreadable one"),
    ],
)
def test_whole_objects_that_fail(source, message):
    with pytest.raises(StartError) as caught:
        built(env_from=(source,))
    assert caught.value.message == message


def test_the_first_error_is_the_one_that_is_reported():
    with pytest.raises(StartError, match="couldn't find key NONE in ConfigMap default/app"):
        built(map_key("app", "NONE"), map_key("gone", "K"))


def test_services_come_last_and_do_not_override():
    made = built(EnvVar(name="DB_PORT", value="mine"), EnvVar(name="URL", value="x$(DB_SERVICE_HOST)"), pod=POD)
    assert list(made)[:2] == ["DB_PORT", "URL"]
    assert (made["DB_PORT"], made["URL"], made["DB_SERVICE_PORT"]) == ("mine", "x10.9.0.1", "5432")


def test_variables_of_devices_come_first_and_are_overridden():
    inputs = EnvironmentInputs(allocation=PodAllocation(), devices={"GPU": "0", "COLOR": "black"})
    made = built(EnvVar(name="COLOR", value="red"), inputs=inputs)
    assert list(made.items()) == [("GPU", "0"), ("COLOR", "red")]


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param(
            replace(POD, spec=replace(POD.spec, enable_service_links=None)),
            "nil pod.spec.enableServiceLinks encountered, cannot construct envvars",
            id="a pod without defaults",
        ),
        pytest.param(
            POD, "services have not yet been read at least once, cannot construct envvars", id="services not read yet"
        ),
    ],
)
def test_what_must_be_known_first(pod, message):
    with pytest.raises(StartError) as caught:
        built(pod=pod, inputs=EnvironmentInputs(allocation=PodAllocation(), services=None))
    assert caught.value.message == message


def test_a_static_pod_does_not_wait_for_services():
    pod = make_pod(source="file")
    inputs = EnvironmentInputs(allocation=PodAllocation(), services=None)
    assert built(EnvVar(name="A", value="1"), pod=pod, inputs=inputs) == {"A": "1"}


def test_values_that_double_each_other_are_refused():
    doubled = [EnvVar(name=f"E{number}", value=f"$(E{number - 1})$(E{number - 1})") for number in range(1, 60)]
    container = replace(make_container("a"), env=(EnvVar(name="E0", value="x"), *doubled))
    with pytest.raises(StartError) as caught:
        build_environment(POD, container, INPUTS)
    assert caught.value.reason == "CreateContainerConfigError"
    assert str(caught.value) == "environment variable E22: too long after its references were replaced"


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
