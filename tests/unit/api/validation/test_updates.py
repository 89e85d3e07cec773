import pytest
from msgspec.structs import replace

from klet.api.validation.updates import validate_ephemeral_containers_update, validate_pod_update

BIG = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
ARMOR = "container.apparmor.security.beta.kubernetes.io/c"
MIRROR = "kubernetes.io/config.mirror"
TOLERATION = {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"}
FIXED = "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


def container(**fields):
    return {"containers": [{"name": "c", "image": "i:1", **fields}]}


def first_lines(errors):
    return [str(error).partition("\n")[0] for error in errors]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {}, [], id="nothing changes"),
        pytest.param({}, container(image="i:2"), [], id="an image"),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "a"}]},
            {"initContainers": [{"name": "i", "image": "a", "imagePullPolicy": "Always"}]},
            [],
            id="the default policy of an image",
        ),
        pytest.param(
            {},
            container(image="", imagePullPolicy="IfNotPresent"),
            ["spec.containers[0].image: Required value", "spec.containers[0].image: Required value"],
            id="no image",
        ),
        pytest.param(
            {},
            container(image="x ", imagePullPolicy="IfNotPresent"),
            ['spec.containers[0].image: Invalid value: "x ": must not have leading or trailing whitespace'] * 2,
            id="an image with blanks around",
        ),
        pytest.param(
            {},
            {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "i"}]},
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
            id="another container",
        ),
        pytest.param(
            {},
            {"initContainers": [{"name": "d", "image": "i"}]},
            ["spec.initContainers: Forbidden: pod updates may not add or remove containers"],
            id="another init container",
        ),
        pytest.param({}, container(resources={"limits": {"cpu": "1"}}), [BIG], id="resources"),
        pytest.param({}, container(ports=[{"containerPort": 80}]), [BIG], id="ports"),
        pytest.param({}, {"securityContext": {"fsGroupChangePolicy": "Always"}}, [BIG], id="the security context"),
        pytest.param({"nodeName": "n"}, {}, [BIG], id="the node"),
        pytest.param({}, {"priorityClassName": "p"}, [BIG], id="the priority class"),
        pytest.param({}, {"os": {"name": "linux"}}, [BIG], id="the operating system"),
        pytest.param({}, {"ephemeralContainers": [{"name": "e", "image": "i"}]}, [BIG], id="ephemeral containers"),
        pytest.param({}, {"activeDeadlineSeconds": 5}, [], id="a deadline"),
        pytest.param({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 3}, [], id="a closer deadline"),
        pytest.param(
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": 6},
            ["spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"],
            id="a later deadline",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 5},
            {},
            ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
            id="no deadline any more",
        ),
        pytest.param(
            {},
            {"activeDeadlineSeconds": -1},
            [
                "spec.activeDeadlineSeconds: Invalid value: -1: must be between 1 and 2147483647, inclusive",
                "spec.activeDeadlineSeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            ],
            id="a negative deadline",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": 0},
            ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
            id="a deadline of zero",
        ),
        pytest.param({}, {"tolerations": [TOLERATION]}, [], id="a toleration"),
        pytest.param(
            {"tolerations": [TOLERATION]},
            {"tolerations": [{"operator": "Exists"}, TOLERATION | {"tolerationSeconds": 5}]},
            [],
            id="the seconds of a toleration",
        ),
        pytest.param(
            {"tolerations": [TOLERATION]}, {"tolerations": [TOLERATION | {"value": "x"}]}, [FIXED], id="its value"
        ),
        pytest.param({"tolerations": [TOLERATION]}, {}, [FIXED], id="a toleration removed"),
        pytest.param(
            {"schedulingGates": [{"name": "a"}, {"name": "b"}]},
            {"schedulingGates": [{"name": "b"}]},
            [],
            id="a gate opens",
        ),
        pytest.param(
            {"schedulingGates": [{"name": "a"}]},
            {"schedulingGates": [{"name": "a"}, {"name": "x"}]},
            ["spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'x'"],
            id="another gate",
        ),
        pytest.param({}, {"nodeSelector": {"a": "b"}}, [BIG], id="a node selector"),
    ],
)
def test_pod_update(make_pod, old, new, expected):
    found = validate_pod_update(make_pod({"spec": new}), make_pod({"spec": old}))
    assert first_lines(found) == expected


def term(*values):
    return {"matchExpressions": [{"key": "a", "operator": "In", "values": [value]} for value in values]}


def terms(*items):
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(items)}}}}


def prefer(weight):
    preferred = [{"weight": weight, "preference": term("x")}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


ANTI = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "k", "labelSelector": {}}]}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            {"nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "b", "c": "d"}}, [], id="a node selector grows"
        ),
        pytest.param(
            {"nodeSelector": {"a": "b"}},
            {"nodeSelector": {"a": "x"}},
            [
                (
                    'spec.nodeSelector: Invalid value: {"a":"x"}: only additions to spec.nodeSelector are allowed '
                    "(no mutations or deletions)"
                )
            ],
            id="a node selector changes",
        ),
        pytest.param({}, terms(term("x")), [], id="a node affinity where there was none"),
        pytest.param(terms(term("x")), terms(term("x", "y")), [], id="a term gets narrower"),
        pytest.param(
            terms(term("x")),
            {},
            [f"{TERMS}: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed"],
            id="the terms go",
        ),
        pytest.param(
            terms(term("x")),
            terms(term("y")),
            [
                (
                    f'{TERMS}[0]: Invalid value: {{"MatchExpressions":[{{"Key":"a","Operator":"In","Values":["y"]}}],'
                    '"MatchFields":null}: only additions are allowed (no mutations or deletions)'
                )
            ],
            id="a term changes",
        ),
        pytest.param(
            terms({}),
            terms(term("y")),
            [
                (
                    f'{TERMS}[0]: Invalid value: {{"MatchExpressions":[{{"Key":"a","Operator":"In","Values":["y"]}}],'
                    '"MatchFields":null}: only additions are allowed (no mutations or deletions)'
                )
            ],
            id="an empty term gets wider",
        ),
        pytest.param(prefer(1), prefer(2), [], id="preferences are free"),
        pytest.param({}, {"affinity": ANTI}, [BIG], id="pod affinity is fixed"),
        pytest.param(
            {"affinity": ANTI}, {"affinity": {**ANTI, **prefer(1)["affinity"]}}, [], id="next to pod affinity"
        ),
    ],
)
def test_a_gated_pod_may_become_more_demanding(make_pod, old, new, expected):
    gates = {"schedulingGates": [{"name": "g"}]}
    found = validate_pod_update(make_pod({"spec": new | gates}), make_pod({"spec": old | gates}))
    assert first_lines(found) == expected


def test_a_negative_grace_period_may_become_one(make_pod):
    new = make_pod({"spec": {"terminationGracePeriodSeconds": 1}})
    old = replace(new, spec=replace(new.spec, termination_grace_period_seconds=-1))
    assert validate_pod_update(new, old) == ()


def test_the_message_shows_the_difference(make_pod):
    [error] = validate_pod_update(make_pod({"spec": {"hostname": "b"}}), make_pod({"spec": {"hostname": "a"}}))
    assert '-   "hostname": "a",' in str(error)
    assert '+   "hostname": "b",' in str(error)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            {"labels": {"a": "b"}}, {"labels": {"c": "d"}, "annotations": {"a": "b"}}, [], id="labels, annotations"
        ),
        pytest.param(
            {},
            {"annotations": {MIRROR: "x", ARMOR: "unconfined"}},
            [
                f"metadata.annotations[{MIRROR}]: Forbidden: may not add mirror pod annotation",
                f"metadata.annotations[{ARMOR}]: Forbidden: may not add AppArmor annotations",
            ],
            id="annotations that may not come",
        ),
        pytest.param(
            {"annotations": {MIRROR: "x", ARMOR: "unconfined"}},
            {"annotations": {MIRROR: "y"}},
            [
                f"metadata.annotations[{MIRROR}]: Forbidden: may not remove or update mirror pod annotation",
                f"metadata.annotations[{ARMOR}]: Forbidden: may not remove or update AppArmor annotations",
            ],
            id="annotations that may not go",
        ),
        pytest.param(
            {}, {"uid": "x"}, ['metadata.uid: Invalid value: "x": field is immutable'], id="metadata that never changes"
        ),
    ],
)
def test_metadata_update(make_pod, old, new, expected):
    spec = {"nodeName": "n"}
    found = validate_pod_update(make_pod({"metadata": new, "spec": spec}), make_pod({"metadata": old, "spec": spec}))
    assert first_lines(found) == expected


def debug(*names, **fields):
    return {"ephemeralContainers": [{"name": name, "image": "i", **fields} for name in names]}


E = "spec.ephemeralContainers"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, debug("a"), [], id="one comes"),
        pytest.param(debug("a"), debug("b", "a"), [], id="the order does not count"),
        pytest.param(
            debug("a"), {}, [f'{E}: Forbidden: existing ephemeral containers "a" may not be removed'], id="one goes"
        ),
        pytest.param(
            debug("a"),
            debug("a", tty=True),
            [f'{E}: Forbidden: existing ephemeral containers "a" may not be changed'],
            id="one changes",
        ),
        pytest.param(
            {},
            debug("a", targetContainerName="x"),
            [f'{E}[0].targetContainerName: Not found: "x"'],
            id="they are checked",
        ),
    ],
)
def test_ephemeral_containers_update(make_pod, old, new, expected):
    found = validate_ephemeral_containers_update(make_pod({"spec": new}), make_pod({"spec": old}))
    assert first_lines(found) == expected


def test_static_pods_have_no_ephemeral_containers(make_pod):
    mirror = {"metadata": {"annotations": {MIRROR: "x"}}, "spec": {"nodeName": "n"}}
    found = validate_ephemeral_containers_update(make_pod(mirror), make_pod(mirror))
    assert first_lines(found) == [": Forbidden: static pods do not support ephemeral containers"]
