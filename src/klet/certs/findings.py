"""What the node records of its certificates: requested, in force, not issued, lost. Pure."""

from datetime import datetime
from typing import Final

from klet.certs.messages import Purpose
from klet.certs.pairs import CertificatePair
from klet.certs.rotation_plan import HeldCertificate
from klet.model.causes import Finding, FindingSubject
from klet.model.reasons import Reason

BOOTSTRAP: Final = "certs.bootstrap"
ROTATOR: Final = "certs.manager"
FOLLOWER: Final = "certs.followers"


def find_request(purpose: Purpose, reason: str) -> Finding:
    return Finding(
        subject=FindingSubject(),
        decider=ROTATOR,
        decision=Reason.CERTIFICATE_REQUESTED,
        message=f"a {purpose.value} certificate is requested: {reason}",
        measurements={"certificate": purpose.value},
        next="wait for the API server to issue it",
    )


def find_in_force(purpose: Purpose, pair: CertificatePair, held: HeldCertificate) -> Finding:
    ends = held.facts.not_after
    return Finding(
        subject=FindingSubject(),
        decider=ROTATOR,
        decision=Reason.CERTIFICATE_IN_FORCE,
        message=f"the {purpose.value} certificate in {pair.certificate_file} is in force until {show(ends)}",
        measurements={"certificate": purpose.value, "ends": show(ends)},
        since=held.facts.not_before,
        next="request the next one",
        next_at=held.deadline,
    )


def find_first(pair: CertificatePair) -> Finding:
    return Finding(
        subject=FindingSubject(),
        decider=BOOTSTRAP,
        decision=Reason.CERTIFICATE_IN_FORCE,
        message=f"the node has its first client certificate, in {pair.certificate_file}",
        measurements={"certificate": Purpose.CLIENT.value},
    )


def find_failure(purpose: Purpose, what: str, error: str, held: HeldCertificate | None) -> Finding:
    """Return the finding of a failure. With a certificate there is time until it expires; without one there is not."""
    left = "there is none meanwhile" if held is None else f"the present one holds until {show(held.facts.not_after)}"
    return Finding(
        subject=FindingSubject(),
        decider=ROTATOR,
        decision=Reason.CERTIFICATE_NOT_RENEWED,
        message=f"{what}: {error}; {left}",
        measurements={"certificate": purpose.value},
        next="try again, at the latest after 32 seconds",
    )


def find_lost(*, is_server_well: bool) -> Finding:
    return Finding(
        subject=FindingSubject(),
        decider=FOLLOWER,
        decision=Reason.CLIENT_CERTIFICATE_LOST,
        message="there has been no valid client certificate for more than five minutes, and the API server "
        + ("answers" if is_server_well else "does not answer"),
        next="end, so that the next start tries the bootstrap credentials" if is_server_well else "go on asking",
    )


def show(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
