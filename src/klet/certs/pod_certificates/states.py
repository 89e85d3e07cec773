"""The state of one certificate of a pod, and the step to the next one (upstream: credState and handleProjection). Pure.

initial ─► waiting ─► issued ◄─► issued, with a request for the next one
              │                       │
              └─► denied, failed ◄────┘
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.api.certificates import PodCertificateRequest
from klet.api.meta import Condition
from klet.api.pod import Pod
from klet.api.times import add_length
from klet.api.validation.rendering import go_quote
from klet.api.volume import PodCertificateProjection
from klet.certs.errors import PodCertificateMissing
from klet.model.hidden_fields import HidesFields
from klet.model.objects import PodCredentials
from klet.model.pem_blocks import read_blocks, write_certificate
from klet.model.pods import PodUID, uid_of
from klet.model.reasons import Reason

ASSUME_DELETED_AFTER: Final = timedelta(minutes=10)
"""A request of this age that the watch does not show counts as deleted."""
OVERDUE_AFTER: Final = timedelta(minutes=10)
LONGEST_JITTER: Final = timedelta(minutes=5)
"""So that certificates which were issued together are not all renewed together."""

NOT_YET_ISSUED: Final = "not_yet_issued"
DENIED: Final = "denied"
FAILED: Final = "failed"
FRESH: Final = "fresh"
OVERDUE_FOR_REFRESH: Final = "overdue_for_refresh"
EXPIRED: Final = "expired"
_NOT_ISSUED: Final = "credential bundle is not issued yet"


class ProjectionKey(NamedTuple):
    """One podCertificate source of one volume of a pod."""

    namespace: str
    pod: str
    uid: PodUID
    volume: str
    source_index: int

    def __str__(self) -> str:
        return f"{{{' '.join(map(str, self))}}}"


class OpenRequest(HidesFields, frozen=True, kw_only=True):
    """A request at the API server that is not decided, and the key that it is for."""

    HIDDEN = frozenset({"key"})

    name: str
    key: bytes
    abandon_at: datetime
    """If the watch does not show it then, it counts as deleted."""


class CertificateInitial(Struct, frozen=True):
    """Nothing has been requested."""


class CertificateWaiting(Struct, frozen=True):
    """The first certificate has been requested."""

    request: OpenRequest


class CertificateIssued(Struct, frozen=True, kw_only=True):
    """There is a certificate; perhaps the next one has been requested."""

    credentials: PodCredentials
    begin_refresh_at: datetime
    not_after: datetime
    request: OpenRequest | None = None
    is_overdue_reported: bool = False
    is_expiry_reported: bool = False


class CertificateDenied(Struct, frozen=True):
    """The signer does not sign it, ever."""

    reason: str
    message: str


class CertificateFailed(Struct, frozen=True):
    """The signer could not sign it, and will not try again."""

    reason: str
    message: str


CertificateState: TypeAlias = (
    CertificateInitial | CertificateWaiting | CertificateIssued | CertificateDenied | CertificateFailed
)


class CertificateReport(NamedTuple):
    """Something to record about the pod."""

    reason: Reason
    message: str
    next_step: str = ""
    next_at: datetime | None = None


class Step(Struct, frozen=True, kw_only=True):
    """What comes next for a certificate."""

    state: CertificateState
    must_request: bool = False
    """Request a certificate now."""
    reports: tuple[CertificateReport, ...] = ()
    error: str = ""
    """What is wrong; it is tried again."""
    look_at: datetime | None = None
    """When something has to be done though nothing happens."""


def projections_of(pod: Pod) -> dict[ProjectionKey, PodCertificateProjection]:
    """Return the podCertificate sources of a pod."""
    return {
        ProjectionKey(pod.metadata.namespace, pod.metadata.name, uid_of(pod), volume.name, index): part.pod_certificate
        for volume in pod.spec.volumes
        for index, part in enumerate(volume.projected.sources if volume.projected is not None else ())
        if part.pod_certificate is not None
    }


def read_credentials(state: CertificateState) -> PodCredentials:
    """Return what a volume shows; raises PodCertificateMissing."""
    match state:
        case CertificateIssued(credentials=credentials):
            return credentials
        case CertificateDenied(reason=reason, message=message):
            raise PodCertificateMissing(_ended("denied", reason, message))
        case CertificateFailed(reason=reason, message=message):
            raise PodCertificateMissing(_ended("failed", reason, message))
        case CertificateInitial() | CertificateWaiting():
            raise PodCertificateMissing(_NOT_ISSUED)


def name_state(state: CertificateState, *, now: datetime) -> str:
    """Return what upstream's metric calls a state at this time."""
    match state:
        case CertificateInitial() | CertificateWaiting():
            return NOT_YET_ISSUED
        case CertificateDenied():
            return DENIED
        case CertificateFailed():
            return FAILED
        case CertificateIssued(not_after=not_after) if now > not_after:
            return EXPIRED
        case CertificateIssued(begin_refresh_at=begin_refresh_at):
            return OVERDUE_FOR_REFRESH if now > add_length(begin_refresh_at, OVERDUE_AFTER) else FRESH


def open_request_of(state: CertificateState) -> OpenRequest | None:
    return state.request if isinstance(state, CertificateWaiting | CertificateIssued) else None


def with_request(state: CertificateState, request: OpenRequest) -> CertificateState:
    """Return the state after a request was made."""
    return replace(state, request=request) if isinstance(state, CertificateIssued) else CertificateWaiting(request)


def decide_step(
    key: ProjectionKey,
    state: CertificateState,
    seen: PodCertificateRequest | None,
    *,
    now: datetime,
    jitter: timedelta,
) -> Step:
    """Return what to do. `seen` is the open request as the API server has it, None if it is not to be seen."""
    match state:
        case CertificateInitial():
            return Step(state=state, must_request=True)
        case CertificateDenied() | CertificateFailed():
            return Step(state=state)
        case CertificateWaiting(request=request):
            return _follow(key, state, request, seen, now=now, jitter=jitter)
        case CertificateIssued(request=None):
            if now < state.begin_refresh_at:
                return Step(state=state, look_at=state.begin_refresh_at)
            return replace(_find_late(state, now=now), must_request=True)
        case CertificateIssued(request=request):
            assert request is not None  # by the case before
            return _follow(key, state, request, seen, now=now, jitter=jitter)


def _follow(
    key: ProjectionKey,
    state: CertificateWaiting | CertificateIssued,
    request: OpenRequest,
    seen: PodCertificateRequest | None,
    *,
    now: datetime,
    jitter: timedelta,
) -> Step:
    """Take over what was decided about a request."""
    name = f"{key.namespace}/{request.name}"
    if seen is None:
        # It was deleted, or the watch has not shown it yet: these look the same. After a while it counts as deleted.
        if now < request.abandon_at:
            return Step(state=state, look_at=request.abandon_at)
        before = replace(state, request=None) if isinstance(state, CertificateIssued) else CertificateInitial()
        return Step(state=before, error=f'PodCertificateRequest "{name}" appears to have been deleted')
    for condition in seen.status.conditions:
        match condition.type:
            case "Denied":
                return Step(
                    state=CertificateDenied(condition.reason, condition.message),
                    reports=(_report_end(Reason.POD_CERTIFICATE_DENIED, "was denied", name, condition),),
                )
            case "Failed":
                return Step(
                    state=CertificateFailed(condition.reason, condition.message),
                    reports=(_report_end(Reason.FAILED, "failed", name, condition),),
                )
            case "Issued":
                return _take_over(state, request, seen, name, jitter=jitter)
            case _:
                continue
    return _find_late(state, now=now) if isinstance(state, CertificateIssued) else Step(state=state)


def _take_over(
    state: CertificateWaiting | CertificateIssued,
    request: OpenRequest,
    seen: PodCertificateRequest,
    name: str,
    *,
    jitter: timedelta,
) -> Step:
    status = seen.status
    if status.begin_refresh_at is None or status.not_after is None:
        return Step(state=state, error=f'PodCertificateRequest "{name}" is issued without beginRefreshAt or notAfter')
    chain = b"".join(map(write_certificate, read_blocks(status.certificate_chain)))
    refresh_at = add_length(status.begin_refresh_at, jitter)
    issued = CertificateIssued(
        credentials=PodCredentials(key=request.key, chain=chain),
        begin_refresh_at=refresh_at,
        not_after=status.not_after,
    )
    message = f"PodCertificateRequest {name} is issued, until {status.not_after:%Y-%m-%dT%H:%M:%SZ}"
    report = CertificateReport(Reason.CERTIFICATE_IN_FORCE, message, "request the next one", refresh_at)
    return Step(state=issued, reports=(report,), look_at=refresh_at)


def _find_late(state: CertificateIssued, *, now: datetime) -> Step:
    """Report, each once, that a certificate should have been renewed and that it has expired."""
    overdue_at = add_length(state.begin_refresh_at, OVERDUE_AFTER)
    reports: list[CertificateReport] = []
    is_overdue, is_expired = now >= overdue_at, now >= state.not_after
    if is_overdue and not state.is_overdue_reported:
        reports.append(CertificateReport(Reason.CERTIFICATE_OVERDUE_FOR_REFRESH, "PodCertificate refresh overdue"))
    if is_expired and not state.is_expiry_reported:
        reports.append(CertificateReport(Reason.CERTIFICATE_EXPIRED, "PodCertificate expired"))
    after = replace(
        state,
        is_overdue_reported=state.is_overdue_reported or is_overdue,
        is_expiry_reported=state.is_expiry_reported or is_expired,
    )
    return Step(
        state=after,
        reports=tuple(reports),
        look_at=min((at for at in (overdue_at, state.not_after) if at > now), default=None),
    )


def _report_end(reason: Reason, what: str, name: str, condition: Condition) -> CertificateReport:
    """Return the Event of a final refusal.

    Upstream uses the condition's reason as the format of the text by mistake; this is the text that it means.
    """
    given = f"reason={go_quote(condition.reason)}, message={go_quote(condition.message)}"
    return CertificateReport(reason, f"PodCertificateRequest {name} {what}, {given}")


def _ended(what: str, reason: str, message: str) -> str:
    given = f"reason={go_quote(reason)} message={go_quote(message)}"
    return f"PodCertificateRequest was permanently {what}: {given}"
