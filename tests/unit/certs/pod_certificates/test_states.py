"""From one state of a pod's certificate to the next."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from klet.api.certificates import PodCertificateRequest, PodCertificateRequestStatus
from klet.api.codec import convert
from klet.api.meta import Condition
from klet.api.pod import Pod
from klet.api.times import Time
from klet.certs.errors import PodCertificateMissing
from klet.certs.pod_certificates.board import NoPodCertificates, PodCertificates
from klet.certs.pod_certificates.states import (
    CertificateDenied,
    CertificateFailed,
    CertificateInitial,
    CertificateIssued,
    CertificateWaiting,
    OpenRequest,
    ProjectionKey,
    Step,
    decide_step,
    projections_of,
    read_credentials,
    with_request,
)
from klet.model.objects import ObjectKind, ObjectRef, PodCredentials
from klet.model.reasons import EventType

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
JITTER = timedelta(seconds=90)
KEY = ProjectionKey("ns", "p", "u", "v", 0)
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
FIRST = OpenRequest(name="req-1", key=b"first key", abandon_at=NOW + 10 * MINUTE)
NEXT = OpenRequest(name="req-2", key=b"next key", abandon_at=NOW + 10 * MINUTE)
FRESH = CertificateIssued(
    credentials=PodCredentials(key=b"first key", chain=CERTIFICATE.encode()),
    begin_refresh_at=NOW + 30 * MINUTE,
    not_after=NOW + 60 * MINUTE,
)
PENDING = PodCertificateRequest()


def decided(kind, reason="Why", message='because "so"', **status):
    condition = Condition(type=kind, status="True", reason=reason, message=message)
    return PodCertificateRequest(status=PodCertificateRequestStatus(conditions=(condition,), **status))


ISSUED = decided(
    "Issued",
    certificate_chain=f"a comment\n{CERTIFICATE.replace('CERTIFICATE', 'X509')}",
    begin_refresh_at=Time.of(NOW + 20 * MINUTE),
    not_after=Time.of(NOW + 40 * MINUTE),
)


def step(state, seen=None, *, now=NOW):
    return decide_step(KEY, state, seen, now=now, jitter=JITTER)


def issued_with(key):
    credentials = PodCredentials(key=key, chain=CERTIFICATE.encode())
    refresh_at = NOW + 20 * MINUTE + JITTER
    return CertificateIssued(credentials=credentials, begin_refresh_at=refresh_at, not_after=NOW + 40 * MINUTE)


INITIAL, WAITING = CertificateInitial(), CertificateWaiting(FIRST)


@pytest.mark.parametrize(
    ("state", "seen", "expected"),
    [
        pytest.param(INITIAL, None, Step(state=INITIAL, must_request=True), id="nothing was requested"),
        pytest.param(WAITING, None, Step(state=WAITING, look_at=FIRST.abandon_at),
                     id="a request that is not to be seen yet"),
        pytest.param(WAITING, PENDING, Step(state=WAITING), id="nobody has decided"),
        pytest.param(WAITING, decided("Other"), Step(state=WAITING), id="a condition that says nothing"),
        pytest.param(WAITING, decided("Issued"), Step(state=WAITING, error='PodCertificateRequest '
                     '"ns/req-1" is issued without beginRefreshAt or notAfter'), id="issued without its times"),
        pytest.param(CertificateDenied("a", "b"), None, Step(state=CertificateDenied("a", "b")), id="denied is final"),
        pytest.param(CertificateFailed("a", "b"), None, Step(state=CertificateFailed("a", "b")), id="failed is final"),
        pytest.param(FRESH, None, Step(state=FRESH, look_at=FRESH.begin_refresh_at), id="fresh"),
        pytest.param(replace(FRESH, request=NEXT), None, Step(state=replace(FRESH, request=NEXT),
                     look_at=NEXT.abandon_at), id="the next request is not to be seen yet"),
        pytest.param(replace(FRESH, request=NEXT), PENDING, Step(state=replace(FRESH, request=NEXT),
                     look_at=FRESH.begin_refresh_at + 10 * MINUTE), id="nobody has decided about the next one"),
    ],
)  # fmt: skip
def test_steps(state, seen, expected):
    assert step(state, seen) == expected


@pytest.mark.parametrize(
    ("state", "after", "error"),
    [
        pytest.param(WAITING, INITIAL, 'PodCertificateRequest "ns/req-1" appears to have been deleted',
                     id="the first one"),
        pytest.param(replace(FRESH, request=NEXT), FRESH,
                     'PodCertificateRequest "ns/req-2" appears to have been deleted', id="the next one"),
    ],
)  # fmt: skip
def test_a_request_that_stays_away_has_been_deleted(state, after, error):
    assert step(state, now=FIRST.abandon_at) == Step(state=after, error=error)


@pytest.mark.parametrize(
    ("state", "key"),
    [
        pytest.param(WAITING, b"first key", id="the first one"),
        pytest.param(replace(FRESH, request=NEXT, is_overdue_reported=True), b"next key", id="the next one"),
    ],
)
def test_an_issued_certificate_goes_with_the_key_of_its_request(state, key):
    done = step(state, ISSUED)
    assert done.state == issued_with(key)
    assert done.look_at == NOW + 20 * MINUTE + JITTER
    [report] = done.reports
    assert (report.reason, report.reason.event_type) == ("CertificateInForce", None)
    assert report.next_at == done.look_at


@pytest.mark.parametrize("state", [WAITING, replace(FRESH, request=NEXT)], ids=["the first one", "the next one"])
@pytest.mark.parametrize(
    ("kind", "cls", "reason", "what", "error"),
    [
        pytest.param("Denied", CertificateDenied, "Denied", "was denied", "permanently denied", id="denied"),
        pytest.param("Failed", CertificateFailed, "Failed", "failed", "permanently failed", id="failed"),
    ],
)
def test_refusals_are_events_in_upstreams_words(state, kind, cls, reason, what, error):
    name = "req-1" if isinstance(state, CertificateWaiting) else "req-2"
    done = step(state, decided(kind))
    assert done.state == cls("Why", 'because "so"')
    [report] = done.reports
    assert (report.reason, report.reason.event_type) == (reason, EventType.WARNING)
    said = f'PodCertificateRequest ns/{name} {what}, reason="Why", message="because \\"so\\""'
    assert report.message == said
    with pytest.raises(PodCertificateMissing) as caught:
        read_credentials(done.state)
    shown = f'PodCertificateRequest was {error}: reason="Why" message="because \\"so\\""'
    assert str(caught.value) == shown


LAST = Time(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_times_at_the_end_of_the_calendar_count_as_never():
    seen = decided("Issued", certificate_chain=CERTIFICATE, begin_refresh_at=LAST, not_after=LAST)
    done = step(WAITING, seen)
    assert done.look_at >= LAST
    assert step(done.state).must_request is False
    assert step(replace(FRESH, begin_refresh_at=LAST, request=NEXT), PENDING).look_at == FRESH.not_after


def test_a_block_that_is_not_ascii_is_no_certificate():
    damaged = CERTIFICATE.replace("b25l", "b25é")
    times = {"begin_refresh_at": LAST, "not_after": LAST}
    done = step(WAITING, decided("Issued", certificate_chain=f"{damaged}{CERTIFICATE}", **times))
    assert done.state.credentials.chain == CERTIFICATE.encode()


OVERDUE, EXPIRED = "PodCertificate refresh overdue", "PodCertificate expired"


@pytest.mark.parametrize(
    ("after", "messages"),
    [
        pytest.param(30, [], id="time to renew it"),
        pytest.param(40, [OVERDUE], id="ten minutes late"),
        pytest.param(60, [OVERDUE, EXPIRED], id="it has expired"),
    ],
)
@pytest.mark.parametrize(("request_", "seen"), [(None, None), (replace(NEXT, abandon_at=NOW + 99 * MINUTE), PENDING)])
def test_what_is_late_is_reported_once(after, messages, request_, seen):
    state, now = replace(FRESH, request=request_), NOW + after * MINUTE
    done = step(state, seen, now=now)
    assert [report.message for report in done.reports] == messages
    assert all(report.reason.event_type is EventType.WARNING for report in done.reports)
    assert done.must_request is (request_ is None)
    assert step(done.state, seen, now=now).reports == ()


@pytest.mark.parametrize("state", [INITIAL, WAITING], ids=["nothing was requested", "nobody has decided"])
def test_what_is_not_issued_cannot_be_read(state):
    with pytest.raises(PodCertificateMissing, match=r"^credential bundle is not issued yet$"):
        read_credentials(state)


def test_requests_follow_states():
    assert with_request(INITIAL, FIRST) == WAITING
    assert with_request(FRESH, NEXT) == replace(FRESH, request=NEXT)
    assert read_credentials(replace(FRESH, request=NEXT)) == FRESH.credentials


def test_no_state_shows_a_key():
    shown = repr((WAITING, replace(FRESH, request=NEXT)))
    assert "first key" not in shown
    assert "next key" not in shown


CERTIFIED = {"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k"}


def pod():
    volumes = [
        {"name": "other", "emptyDir": {}},
        {"name": "v", "projected": {"sources": [{"podCertificate": CERTIFIED}, {"configMap": {"name": "m"}},
                                                {"podCertificate": {**CERTIFIED, "keyPath": "l"}}]}},
    ]  # fmt: skip
    spec = {"containers": [], "volumes": volumes}
    return convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})


def test_sources_of_a_pod_are_known_by_their_place():
    assert {key: source.key_path for key, source in projections_of(pod()).items()} == {
        ("ns", "p", "u", "v", 0): "k",
        ("ns", "p", "u", "v", 2): "l",
    }


def test_a_volume_reads_what_is_on_the_board():
    board = PodCertificates()
    with pytest.raises(PodCertificateMissing, match=r"^no credentials yet for key=\{ns p u v 2\}$"):
        board.read(pod(), "v", 2)
    with board.changes() as changes:
        board.put(KEY, WAITING)
        assert changes.drain() == []
        board.put(KEY, FRESH)
        board.put(KEY, replace(FRESH, request=NEXT))
        assert changes.drain() == [ObjectRef(ObjectKind.POD_CERTIFICATE, "ns", "p")]
        assert board.read(pod(), "v", 0) == FRESH.credentials
        board.put(KEY, CertificateDenied("a", "b"))
        assert len(changes.drain()) == 1
    board.forget("u")
    assert list(board.known()) == []


def test_a_node_without_the_feature():
    with pytest.raises(PodCertificateMissing, match="the gate PodCertificateRequest is off"):
        NoPodCertificates().read(pod(), "v", 0)
    assert NoPodCertificates().changes().drain() == []
