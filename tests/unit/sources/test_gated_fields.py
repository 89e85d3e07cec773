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


class Sink:
    def __init__(self) -> None:
        self.received: list[tuple[str, tuple[Pod, ...]]] = []

    def set_pods(self, source: str, pods: tuple[Pod, ...]) -> None:
        self.received.append((source, pods))


@pytest.mark.parametrize("source", ["file", "http", "api"])
def test_pods_are_handed_on_without_what_is_switched_off(source):
    sink = Sink()
    gated = GatedPods(is_enabled=lambda gate: gate != "HostnameOverride", sink=sink)
    rules = main(restartPolicy="Never", restartPolicyRules=RULES)
    gated.set_pods(source, (pod({"hostnameOverride": "other", **rules}),))
    assert sink.received == [(source, (pod(rules),))]


def test_a_pod_that_stays_stays_the_same_object():
    """Parts behind the sources take another object for a change."""
    sink = Sink()
    gated = GatedPods(is_enabled=lambda gate: gate != "HostnameOverride", sink=sink)
    stays, changes = pod({"hostnameOverride": "other"}), pod({"hostnameOverride": "old"})
    gated.set_pods("api", (stays, changes))
    gated.set_pods("file", ())
    gated.set_pods("api", (stays, pod({"hostnameOverride": "new"})))
    first, _, second = (pods for _, pods in sink.received)
    assert second[0] is first[0]
    assert second[1] is not first[1]


def test_nothing_is_touched_while_all_gates_are_on():
    sink, pods = Sink(), (pod({"hostnameOverride": "other"}),)
    GatedPods(is_enabled=lambda _: True, sink=sink).set_pods("api", pods)
    assert sink.received[0][1] is pods
