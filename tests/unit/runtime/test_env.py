"""A container's environment: order, expansion, the pod's own fields."""

import pytest
from msgspec.structs import replace

from klet.api.container import EnvFromSource, EnvVar, EnvVarSource, ObjectFieldSelector, SecretKeySelector
from klet.api.pod import Pod
from klet.runtime.env import build_environment, expand, field_value
from klet.runtime.errors import StartError
from klet.testing.builders import make_container, make_pod

POD = make_pod(name="web", uid="u-1")
POD = replace(
    POD,
    metadata=replace(POD.metadata, labels={"b": 'x"y', "a": "1"}, annotations={"note": "two\nlines"}),
    spec=replace(POD.spec, node_name="node-1", service_account_name="robot"),
)


def built(*variables: EnvVar, pod: Pod = POD) -> dict[str, str]:
    container = replace(make_container("c"), env=variables)
    return build_environment(pod, container, pod_ips=("10.0.0.1",), node_ips=("192.168.0.1",))


def of_field(path: str, version: str = "v1") -> EnvVar:
    source = EnvVarSource(field_ref=ObjectFieldSelector(field_path=path, api_version=version))
    return EnvVar(name="V", value_from=source)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain", "plain", id="a plain text"),
        pytest.param("$(VAR)", "a", id="a known name"),
        pytest.param("x$(VAR)y$(VAR)", "xaya", id="names within a text"),
        pytest.param("$(OTHER)", "$(OTHER)", id="an unknown name stays"),
        pytest.param("$$(VAR)", "$(VAR)", id="an escaped reference"),
        pytest.param("$(VAR", "$(VAR", id="an open reference"),
        pytest.param("foo$$", "foo$", id="an escaped dollar at the end"),
        pytest.param("foo$", "foo$", id="a dollar at the end"),
        pytest.param("$$$(VAR)", "$a", id="an escaped dollar before a reference"),
        pytest.param("$$$$(VAR)", "$$(VAR)", id="two escaped dollars"),
        pytest.param("$()", "$()", id="an empty name"),
        pytest.param("$x", "$x", id="a dollar before something else"),
        pytest.param("$(NESTED)", "$(VAR)", id="values are not expanded again"),
        pytest.param("$(A$(VAR)", "$(A$(VAR)", id="a name ends at the first parenthesis"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_expansion(text, expected):
    assert expand(text, {"VAR": "a", "NESTED": "$(VAR)"}) == expected


def test_an_empty_name_can_have_a_value():
    assert expand("$()", {"": "x"}) == "x"


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
    ("path", "expected"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u-1"),
        ("metadata.labels", 'a="1"\nb="x\\"y"'),
        ("metadata.annotations", 'note="two\\nlines"'),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['gone']", ""),
        ("metadata.annotations['note']", "two\nlines"),
        ("spec.nodeName", "node-1"),
        ("spec.host", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "192.168.0.1"),
        ("status.hostIPs", "192.168.0.1"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIPs", "10.0.0.1"),
    ],
)
def test_fields_of_the_pod(path, expected):
    assert built(of_field(path)) == {"V": expected}


@pytest.mark.parametrize(
    ("pod_ips", "node_ips", "first", "every"),
    [
        pytest.param((), (), "", "", id="no addresses yet"),
        pytest.param(("10.0.0.1", "fd00::1"), ("192.168.0.1",), "10.0.0.1", "10.0.0.1,fd00::1", id="IPv4 leads"),
        pytest.param(
            ("10.0.0.1", "fd00::1"), ("fd00::9",), "fd00::1", "fd00::1,10.0.0.1", id="the node's family leads"
        ),
        pytest.param(("fd00::1", "10.0.0.1"), (), "fd00::1", "fd00::1,10.0.0.1", id="the order of the runtime"),
        pytest.param(("10.0.0.1", "10.0.0.2"), ("192.168.0.1",), "10.0.0.1", "10.0.0.1", id="one for each family"),
    ],
)
def test_addresses(pod_ips, node_ips, first, every):
    assert field_value(POD, "status.podIP", pod_ips=pod_ips, node_ips=node_ips) == first
    assert field_value(POD, "status.podIPs", pod_ips=pod_ips, node_ips=node_ips) == every


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        pytest.param("\\", '"\\\\"', id="a backslash"),
        pytest.param("\t\r\a", '"\\t\\r\\a"', id="characters with a letter of their own"),
        pytest.param("\x01\x7f", '"\\x01\\x7f"', id="other control characters"),
        pytest.param("é☃", '"é☃"', id="printable characters stay"),
        pytest.param("\u200b", '"\\u200b"', id="what cannot be printed"),
        pytest.param("\U000e0001", '"\\U000e0001"', id="what cannot be printed, far out"),
    ],
)
def test_maps_are_quoted_as_go_does(text, quoted):
    pod = replace(POD, metadata=replace(POD.metadata, labels={"k": text}))
    assert field_value(pod, "metadata.labels", pod_ips=(), node_ips=()) == f"k={quoted}"


@pytest.mark.parametrize("path", ["status.phase", "spec.restartPolicy", "spec.schedulerName", "nonsense"])
def test_other_fields_are_refused(path):
    with pytest.raises(StartError) as caught:
        built(of_field(path))
    assert (caught.value.reason, caught.value.message) == (
        "CreateContainerConfigError",
        f"unsupported fieldPath: {path}",
    )


def test_another_version_of_the_pod_is_refused():
    with pytest.raises(StartError, match="unsupported pod version: v2"):
        built(of_field("metadata.name", version="v2"))


@pytest.mark.parametrize(
    "container",
    [
        pytest.param(replace(make_container("c"), env_from=(EnvFromSource(prefix="P_"),)), id="envFrom"),
        pytest.param(
            replace(
                make_container("c"),
                env=(EnvVar(name="V", value_from=EnvVarSource(secret_key_ref=SecretKeySelector(key="k"))),),
            ),
            id="a key of a secret",
        ),
    ],
)
def test_what_needs_the_api_fails_the_container_and_not_silently(container):
    with pytest.raises(StartError) as caught:
        build_environment(POD, container, pod_ips=(), node_ips=())
    assert caught.value.reason == "CreateContainerConfigError"
