"""Fields whose feature gate is off."""

import pytest

from klet.api.codec import convert, to_builtins
from klet.api.pod import Pod
from klet.config.gates import KNOWN_GATES
from klet.sources.gated_fields import GATED_FIELDS, GatedPods, drop_disabled_fields

FILE_REF = {"fileKeyRef": {"volumeName": "v", "path": "env", "key": "A"}}
RULES = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]


def pod(spec: dict) -> Pod:
    containers = [{"name": "main", "image": "x"}]
    return convert(Pod, {"metadata": {"name": "web"}, "spec": {"containers": containers, **spec}})


def main(**fields) -> dict:
    return {"containers": [{"name": "main", "image": "x", **fields}]}


def init(**fields) -> dict:
    return {"initContainers": [{"name": "setup", "image": "x", **fields}]}


@pytest.mark.parametrize(
    ("gate", "given", "expected"),
    [
        pytest.param("HostnameOverride", {"hostnameOverride": "other"}, {}, id="the host name is the usual one"),
        pytest.param(
            "ImageVolume",
            {"volumes": [{"name": "i", "image": {"reference": "x"}}, {"name": "e", "emptyDir": {}}]},
            {"volumes": [{"name": "e", "emptyDir": {}}]},
            id="a volume that is an image is not there",
        ),
        pytest.param(
            "EnvFiles",
            main(env=[{"name": "A", "valueFrom": FILE_REF}, {"name": "B", "value": "b"}]),
            main(env=[{"name": "A"}, {"name": "B", "value": "b"}]),
            id="a variable from a file is empty",
        ),
        pytest.param(
            "EnvFiles",
            init(env=[{"name": "A", "valueFrom": FILE_REF}]),
            init(env=[{"name": "A"}]),
            id="also that of an init container",
        ),
        pytest.param(
            "EnvFiles",
            {"ephemeralContainers": [{"name": "debug", "image": "x", "env": [{"name": "A", "valueFrom": FILE_REF}]}]},
            {"ephemeralContainers": [{"name": "debug", "image": "x", "env": [{"name": "A"}]}]},
            id="and that of an ephemeral one",
        ),
        pytest.param(
            "EnvFiles",
            main(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            main(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            id="other references stay",
        ),
        pytest.param(
            "ContainerRestartRules",
            main(restartPolicy="Never", restartPolicyRules=RULES),
            main(),
            id="the pod's policy counts",
        ),
        pytest.param("ContainerRestartRules", init(restartPolicy="OnFailure"), init(), id="also for init containers"),
        pytest.param(
            "ContainerRestartRules", init(restartPolicy="Always"), init(restartPolicy="Always"), id="but sidecars stay"
        ),
        pytest.param(
            "PodLevelResources",
            {"resources": {"limits": {"cpu": "1"}}},
            {},
            id="only containers have resources",
        ),
    ],
)
def test_fields_of_a_gate_that_is_off(gate, given, expected):
    assert to_builtins(drop_disabled_fields(pod(given), frozenset({gate}))) == to_builtins(pod(expected))
    assert drop_disabled_fields(pod(given), frozenset()) == pod(given)


@pytest.mark.parametrize("gate", GATED_FIELDS)
def test_a_pod_without_such_fields_stays_as_it_is(gate):
    plain = pod({})
    assert drop_disabled_fields(plain, frozenset({gate})) == plain
    assert gate in KNOWN_GATES


def test_pods_are_handed_on_without_what_is_switched_off():
    received: list[tuple[str, tuple[Pod, ...]]] = []

    class Sink:
        def set_pods(self, source: str, pods: tuple[Pod, ...]) -> None:
            received.append((source, pods))

    gated = GatedPods(is_enabled=lambda gate: gate != "HostnameOverride", sink=Sink())
    both = {"hostnameOverride": "other", "resources": {"limits": {"cpu": "1"}}}
    gated.set_pods("file", (pod(both),))
    assert received == [("file", (pod({"resources": {"limits": {"cpu": "1"}}}),))]
