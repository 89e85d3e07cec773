"""How many certificates of pods there are, by signer and state."""

from datetime import timedelta

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.certs.pod_certificates.board import PodCertificates
from klet.certs.pod_certificates.metrics import register_pod_certificates
from klet.certs.pod_certificates.states import (
    CertificateDenied,
    CertificateFailed,
    CertificateInitial,
    CertificateIssued,
    CertificateWaiting,
    OpenRequest,
    projections_of,
)
from klet.metrics import MetricRegistry
from klet.model.objects import PodCredentials
from klet.testing.clock import ManualClock

MINUTE = timedelta(minutes=1)
CLOCK = ManualClock()
NOW = CLOCK.now()
REQUEST = OpenRequest(name="r", key=b"k", abandon_at=NOW)


def issued(*, refresh, end, request=None):
    credentials = PodCredentials(key=b"k", chain=b"c")
    return CertificateIssued(
        credentials=credentials,
        begin_refresh_at=NOW + refresh * MINUTE,
        not_after=NOW + end * MINUTE,
        request=request,
    )


def pod(name, *signers):
    sources = [{"podCertificate": {"signerName": signer, "keyType": "ED25519"}} for signer in signers]
    spec = {"containers": [], "volumes": [{"name": "v", "projected": {"sources": sources}}]}
    return convert(Pod, {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}, "spec": spec})


def counted(pods, states):
    """The series, after the sources of the pods got these states in turn."""
    registry, board = MetricRegistry(), PodCertificates()
    for key, state in zip((key for each in pods for key in projections_of(each)), states, strict=True):
        if state is not None:
            board.put(key, state)
    register_pod_certificates(registry, board, lambda: tuple(pods), CLOCK)
    return {line for line in registry.write().decode().splitlines() if not line.startswith("#")}


@pytest.mark.parametrize(
    ("state", "name"),
    [
        pytest.param(CertificateInitial(), "not_yet_issued", id="nothing requested"),
        pytest.param(CertificateWaiting(REQUEST), "not_yet_issued", id="requested"),
        pytest.param(CertificateDenied("a", "b"), "denied", id="denied"),
        pytest.param(CertificateFailed("a", "b"), "failed", id="failed"),
        pytest.param(issued(refresh=1, end=60), "fresh", id="issued"),
        pytest.param(issued(refresh=-10, end=60, request=REQUEST), "fresh", id="late, but not too late"),
        pytest.param(issued(refresh=-11, end=60, request=REQUEST), "overdue_for_refresh", id="too late"),
        pytest.param(issued(refresh=-11, end=0), "overdue_for_refresh", id="in its last moment"),
        pytest.param(issued(refresh=-60, end=-1), "expired", id="expired"),
    ],
)
def test_states_have_upstreams_names(state, name):
    series = f'kubelet_podcertificate_states{{signer_name="a.io/s",state="{name}"}} 1'
    assert counted([pod("p", "a.io/s")], [state]) == {series}


def test_sources_are_counted_together_and_those_without_a_state_are_not():
    fresh, denied = issued(refresh=1, end=2), CertificateDenied("a", "b")
    pods = [pod("p", "a.io/s", "a.io/s", "b.io/s"), pod("q", "a.io/s", "a.io/s")]
    assert counted(pods, [fresh, denied, fresh, fresh, None]) == {
        'kubelet_podcertificate_states{signer_name="a.io/s",state="fresh"} 2',
        'kubelet_podcertificate_states{signer_name="a.io/s",state="denied"} 1',
        'kubelet_podcertificate_states{signer_name="b.io/s",state="fresh"} 1',
    }
