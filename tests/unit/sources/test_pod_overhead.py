"""Pods on their way from the sources to the sync loop."""

from msgspec.structs import replace

from klet.api.node import Overhead, RuntimeClass
from klet.api.quantity import Quantity
from klet.sources.pod_overhead import PodsWithOverhead
from klet.testing.builders import make_pod


class Sink:
    def __init__(self):
        self.pods = {}

    def set_pods(self, source, pods):
        self.pods[source] = pods


def test_pods_get_the_overhead_of_their_classes():
    overhead = {"memory": Quantity.parse("4Mi")}
    sink = Sink()
    pods = PodsWithOverhead(
        classes={"heavy": RuntimeClass(handler="vm", overhead=Overhead(pod_fixed=overhead))}, sink=sink
    )
    plain = make_pod()
    heavy = replace(plain, spec=replace(plain.spec, runtime_class_name="heavy"))
    pods.set_pods("file", (plain, heavy))
    assert sink.pods == {"file": (plain, replace(heavy, spec=replace(heavy.spec, overhead=overhead)))}
