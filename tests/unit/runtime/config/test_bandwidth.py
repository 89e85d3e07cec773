"""Which bandwidth annotations are refused, in upstream's words."""

import pytest
from msgspec.structs import replace

from klet.runtime.config.bandwidth import check_bandwidth
from klet.runtime.errors import SandboxConfigError
from klet.testing.builders import make_container, make_pod

INGRESS, EGRESS = "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"
SMALL, LARGE = "resource is unreasonably small (< 1kbit)", "resource is unreasonably large (> 1Pbit)"


def pod_with(annotations, *, host_network=False):
    pod = make_pod(make_container("c"))
    spec = replace(pod.spec, host_network=host_network)
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), spec=spec)


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="none"),
        pytest.param({INGRESS: "1k", EGRESS: "1P"}, id="the least and the most"),
        pytest.param({INGRESS: "10M"}, id="one of the two"),
        pytest.param({EGRESS: "2Gi"}, id="a binary amount"),
        pytest.param({"kubernetes.io/bandwidth": "fast"}, id="another annotation"),
    ],
)
def test_reasonable(annotations):
    check_bandwidth(pod_with(annotations))


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param({INGRESS: "999"}, f'{INGRESS} "999": {SMALL}', id="too little"),
        pytest.param({EGRESS: "0"}, f'{EGRESS} "0": {SMALL}', id="nothing"),
        pytest.param({EGRESS: "-1M"}, f'{EGRESS} "-1M": {SMALL}', id="less than nothing"),
        pytest.param({INGRESS: "1k", EGRESS: "2P"}, f'{EGRESS} "2P": {LARGE}', id="too much"),
        pytest.param({INGRESS: "fast"}, f'{INGRESS} "fast": quantities must match', id="no amount"),
        pytest.param({INGRESS: ""}, f'{INGRESS} "": ', id="an empty text"),
    ],
)
def test_unreasonable(annotations, message):
    with pytest.raises(SandboxConfigError) as caught:
        check_bandwidth(pod_with(annotations))
    assert str(caught.value).startswith(f"reading pod bandwidth annotations: {message}")


def test_a_pod_on_the_hosts_network_has_no_limit_of_its_own():
    check_bandwidth(pod_with({INGRESS: "1"}, host_network=True))
