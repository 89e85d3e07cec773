import pytest

A = "metadata.annotations"
MIRROR = "kubernetes.io/config.mirror"
COST = "controller.kubernetes.io/pod-deletion-cost"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_C = "container.seccomp.security.alpha.kubernetes.io/c"
ARMOR = "container.apparmor.security.beta.kubernetes.io/c"
S = "spec.securityContext.seccompProfile"
SC = "spec.containers[0].securityContext.seccompProfile"
AC = "spec.containers[0].securityContext.appArmorProfile"
TYPE = "Forbidden: {} type in annotation and field must match"
PROFILE = "Forbidden: {} profile in annotation and field must match"


@pytest.mark.parametrize(
    ("annotations", "spec", "expected"),
    [
        pytest.param({MIRROR: "x"}, {"nodeName": "n"}, [], id="a mirror pod on a node"),
        pytest.param(
            {MIRROR: "x"},
            {},
            [f'{A}[{MIRROR}]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set'],
            id="a mirror pod nowhere",
        ),
        pytest.param({COST: "-5"}, {}, [], id="a deletion cost"),
        pytest.param(
            {COST: "1.5"}, {}, [f'{A}[{COST}]: Invalid value: "1.5": must be a 32bit integer'], id="not an integer"
        ),
        pytest.param(
            {COST: "+1"}, {}, [f'{A}[{COST}]: Invalid value: "+1": must be a 32bit integer'], id="no plus sign"
        ),
        pytest.param(
            {COST: "2147483648"},
            {},
            [f'{A}[{COST}]: Invalid value: "2147483648": must be a 32bit integer'],
            id="too much",
        ),
        pytest.param({SECCOMP: "runtime/default", SECCOMP_C: "localhost/a"}, {}, [], id="old seccomp profiles"),
        pytest.param(
            {SECCOMP: "x"},
            {},
            [f'{A}.{SECCOMP}: Invalid value: "x": must be a valid seccomp profile'],
            id="unknown seccomp",
        ),
        pytest.param(
            {SECCOMP_C: "localhost//a"},
            {},
            [f'{A}.{SECCOMP_C}: Invalid value: "/a": must be a relative path'],
            id="an absolute seccomp profile",
        ),
        pytest.param({ARMOR: "localhost/x"}, {}, [], id="an old AppArmor profile"),
        pytest.param(
            {ARMOR[:-1] + "z": "x"},
            {},
            [
                f'{A}[{ARMOR[:-1]}z]: Invalid value: "z": container not found',
                f'{A}[{ARMOR[:-1]}z]: Invalid value: "x": invalid AppArmor profile name: "x"',
            ],
            id="AppArmor for nobody",
        ),
        pytest.param(
            {SECCOMP: "docker/default"},
            {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
            [],
            id="agreed",
        ),
        pytest.param(
            {SECCOMP: "unconfined"},
            {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
            [f"{S}.type: {TYPE.format('seccomp')}"],
            id="the pod's seccomp type",
        ),
        pytest.param(
            {SECCOMP: "localhost/a"},
            {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "b"}}},
            [f"{S}.localhostProfile: {PROFILE.format('seccomp')}"],
            id="the pod's seccomp profile",
        ),
        pytest.param(
            {SECCOMP: "unconfined"},
            {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "b"}}},
            [f"{S}.type: {TYPE.format('seccomp')}"],
            id="a local seccomp profile",
        ),
        pytest.param(
            {ARMOR: "unconfined"},
            {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
            [f"{AC}.type: {TYPE.format('apparmor')}"],
            id="AppArmor inherited from the pod",
        ),
        pytest.param(
            {ARMOR: "unconfined"},
            {"os": {"name": "windows"}},
            [],
            id="no AppArmor on windows",
        ),
    ],
)
def test_pod_annotations(errors_of, annotations, spec, expected):
    assert errors_of({"metadata": {"annotations": annotations}, "spec": spec}) == expected


@pytest.mark.parametrize(
    ("annotations", "context", "expected"),
    [
        pytest.param(
            {SECCOMP_C: "runtime/default"},
            {"seccompProfile": {"type": "Unconfined"}},
            [f"{SC}.type: {TYPE.format('seccomp')}"],
            id="seccomp",
        ),
        pytest.param(
            {ARMOR: "localhost/a"},
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "b"}},
            [f"{AC}.localhostProfile: {PROFILE.format('apparmor')}"],
            id="AppArmor",
        ),
    ],
)
def test_annotations_of_a_container_match_its_fields(errors_of, annotations, context, expected):
    containers = [{"name": "c", "image": "i", "securityContext": context}]
    assert errors_of({"metadata": {"annotations": annotations}, "spec": {"containers": containers}}) == expected
