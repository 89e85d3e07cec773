"""How rejections are counted."""

import pytest

from klet.sync.metrics import rejection_label


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        pytest.param("OutOfcpu", "OutOfcpu", id="a resource that every node has"),
        pytest.param("OutOfephemeral-storage", "OutOfephemeral-storage", id="local storage"),
        pytest.param("OutOfexample.com/gpu", "OutOfExtendedResources", id="a device"),
        pytest.param("OutOfhugepages-2Mi", "OutOfExtendedResources", id="huge pages"),
        pytest.param("UnexpectedAdmissionError", "UnexpectedAdmissionError", id="a known reason"),
        pytest.param("Evicted", "Evicted", id="pressure"),
        pytest.param("NodeAffinity", "Other", id="labels, as upstream has it"),
        pytest.param("NodePorts", "Other", id="ports, as upstream has it"),
        pytest.param("TaintToleration", "Other", id="taints, of which upstream knows only the message"),
        pytest.param("Whatever", "Other", id="anything else"),
    ],
)
def test_the_label_of_a_rejection(reason, label):
    assert rejection_label(reason) == label
