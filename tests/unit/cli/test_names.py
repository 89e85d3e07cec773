import pytest

from klet.api.klet_v1 import RecordedPod
from klet.cli.names import (
    NamedPod,
    UnclearName,
    choose_container,
    choose_name,
    find_pod,
    is_node,
    manifest_name,
    parse_reference,
    pod_names,
    recorded_names,
)


@pytest.mark.parametrize(
    ("text", "namespace", "expected"),
    [
        ("hello", None, NamedPod(None, "hello")),
        ("hello", "web", NamedPod("web", "hello")),
        ("pod/hello", None, NamedPod(None, "hello")),
        ("web/hello", None, NamedPod("web", "hello")),
        ("pod/web/hello", None, NamedPod("web", "hello")),
        ("web/hello", "web", NamedPod("web", "hello")),
    ],
)
def test_parse_reference(text, namespace, expected):
    assert parse_reference(text, namespace=namespace) == expected


@pytest.mark.parametrize(("text", "namespace"), [("", None), ("a/b/c/d", None), ("pod/", None), ("web/hello", "db")])
def test_what_is_no_reference(text, namespace):
    with pytest.raises(UnclearName):
        parse_reference(text, namespace=namespace)


@pytest.fixture
def pods(build_pod):
    return [
        build_pod(name="hello-node"),
        build_pod(name="hello-node", namespace="web"),
        build_pod(name="db-node"),
        build_pod(name="db-node-node"),
    ]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param(NamedPod("web", "hello"), 1, id="the manifest's name in a namespace"),
        pytest.param(NamedPod("default", "hello-node"), 0, id="the full name in a namespace"),
        pytest.param(NamedPod(None, "db"), 2, id="a name that is unique needs no namespace"),
        pytest.param(NamedPod(None, "db-node"), 2, id="a full name goes before another's manifest name"),
    ],
)
def test_find_pod(pods, reference, expected):
    assert find_pod(pods, reference) is pods[expected]


def test_a_name_with_two_meanings_lists_them(pods):
    with pytest.raises(UnclearName, match="2 pods: default/hello-node, web/hello-node"):
        find_pod(pods, NamedPod(None, "hello"))


def test_a_name_without_a_meaning_lists_what_there_is(pods):
    with pytest.raises(UnclearName, match="no pod 'x' in namespace 'web'; there are: default/db,"):
        find_pod(pods, NamedPod("web", "x"))
    with pytest.raises(UnclearName, match="none runs"):
        find_pod([], NamedPod(None, "x"))


def test_manifest_name(build_pod):
    assert manifest_name(build_pod(name="hello-node")) == "hello"
    assert manifest_name(build_pod(name="hello", spec={"nodeName": ""})) == "hello"


def test_choose_container(build_pod):
    pod = build_pod(containers=[build_pod.status("a", {}), build_pod.status("b", {})], init=[build_pod.status("i", {})])
    assert choose_container(pod, None) == "a"
    assert choose_container(pod, "i") == "i"
    with pytest.raises(UnclearName, match="no container 'x'; it has: a, b, i"):
        choose_container(pod, "x")


@pytest.fixture
def reported(now):
    """Names that the journal remembers."""

    def build(*names):
        pods = [RecordedPod(namespace=namespace, name=name, last=now) for namespace, name in names]
        return recorded_names(pods, node_name="node")

    return build


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param(NamedPod("web", "hello"), ("web", "hello-node"), id="a pod that is there"),
        pytest.param(NamedPod(None, "old"), ("default", "old-node"), id="one that is gone, by its manifest's name"),
        pytest.param(NamedPod(None, "old-node"), ("default", "old-node"), id="one that is gone, by its full name"),
        pytest.param(NamedPod(None, "db"), ("default", "db-node"), id="one that is there goes first"),
    ],
)
def test_choose_name(pods, reported, reference, expected):
    remembered = reported(("default", "old-node"), ("other", "db-node"), ("default", "hello-node"))
    name = choose_name(reference, pod_names(pods), lambda: remembered)
    assert (name.namespace, name.name) == expected


def test_a_pod_that_leaves_and_the_one_that_comes_have_one_name(build_pod):
    pods = [build_pod(name="web-node"), build_pod(name="web-node", metadata={"uid": "u2"})]
    assert choose_name(NamedPod(None, "web"), pod_names(pods), frozenset).name == "web-node"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param(
            "helo", "no pod 'helo', and none is remembered; did you mean: default/hello, web/hello", id="near"
        ),
        pytest.param("odl", "did you mean: default/old\\?", id="near one that is gone"),
        pytest.param("zzzzzz", "none is remembered; there are: default/db, default/db-node, default/hello", id="far"),
        pytest.param("hello", "'hello' means 2 pods: default/hello-node, web/hello-node", id="two meanings"),
    ],
)
def test_names_that_mean_nothing_or_too_much(pods, reported, name, message):
    with pytest.raises(UnclearName, match=message):
        choose_name(NamedPod(None, name), pod_names(pods), lambda: reported(("default", "old-node")))


def test_nothing_is_there_and_nothing_remembered():
    with pytest.raises(UnclearName, match="no pod 'x' in namespace 'web', and none is remembered; none runs"):
        choose_name(NamedPod("web", "x"), frozenset(), frozenset)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("node", True, id="the node"),
        pytest.param("node/n1", True, id="the node by its name"),
        pytest.param("nodes/n1", True, id="as kubectl takes it too"),
        pytest.param("no/n1", True, id="and short"),
        pytest.param("no", False, id="a pod with a short name"),
        pytest.param("node/ns/x", False, id="no name of a node"),
        pytest.param("pod/node", False, id="a pod that is called node"),
        pytest.param("web", False, id="a pod"),
    ],
)
def test_is_node(text, expected):
    assert is_node(text) is expected
