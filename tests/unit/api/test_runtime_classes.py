"""What pods get from their runtime classes."""

import pytest
from msgspec.structs import replace

from klet.api.node import Overhead, RuntimeClass
from klet.api.quantity import Quantity
from klet.api.runtime_classes import add_overhead
from klet.testing.builders import make_pod

TEN, ONE = Quantity.parse("10m"), Quantity.parse("1m")
CLASSES = {
    "heavy": RuntimeClass(handler="vm", overhead=Overhead(pod_fixed={"cpu": TEN})),
    "fine": RuntimeClass(handler="vm", overhead=Overhead(pod_fixed={"cpu": Quantity.parse("1u")})),
    "light": RuntimeClass(handler="runc"),
}


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [
        pytest.param("heavy", {}, {"cpu": TEN}, id="the overhead of the class"),
        pytest.param("fine", {}, {"cpu": ONE}, id="a finer one is rounded as a pod's own"),
        pytest.param("heavy", {"cpu": ONE}, {"cpu": ONE}, id="what the pod says holds"),
        pytest.param("light", {}, {}, id="a class without overhead"),
        pytest.param("unknown", {}, {}, id="an unknown class is reported when the sandbox is made"),
        pytest.param(None, {}, {}, id="no class"),
    ],
)
def test_add_overhead(name, own, expected):
    pod = make_pod()
    pod = replace(pod, spec=replace(pod.spec, runtime_class_name=name, overhead=own))
    assert add_overhead(pod, CLASSES).spec.overhead == expected
