"""When a certificate is replaced (upstream's certificate manager): pure decisions about facts, templates and time."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from msgspec import Struct

from klet.certs.messages import CertificateFacts, Template
from klet.certs.templates import canonical_ip

ISSUE_PATIENCE: Final = timedelta(minutes=15)
"""How long one request may wait for its certificate."""
TEMPLATE_PERIOD: Final = timedelta(seconds=1)
"""How often a template that may change is looked at."""

_EARLIEST: Final = 0.7
_SPREAD: Final = 0.2
_FIRST_TRIES: Final = (2, 4, 8, 16)
_TRY_JITTER: Final = 0.1
_LATER_TRY: Final = timedelta(seconds=32)


class HeldCertificate(Struct, frozen=True, kw_only=True):
    """A certificate in use, and when it is to be replaced."""

    facts: CertificateFacts
    deadline: datetime


class Rotate(Struct, frozen=True):
    """Request a new one now."""

    reason: str


class CheckAgain(Struct, frozen=True):
    """Nothing to do until then."""

    until: datetime
    reason: str


Decision: TypeAlias = Rotate | CheckAgain


class KeepStored(Struct, frozen=True):
    """Begin with the pair of the store."""


class TakeInline(Struct, frozen=True):
    """Begin with the pair in the kubeconfig itself: put it into the store and rotate at once."""


class BeginEmpty(Struct, frozen=True):
    """Begin without a certificate and request one."""


Beginning: TypeAlias = KeepStored | TakeInline | BeginEmpty


def decide_beginning(stored: CertificateFacts | None, inline: CertificateFacts | None, *, now: datetime) -> Beginning:
    """Choose the certificate to start with. An expired one of the store counts as none."""
    if stored is not None and now < stored.not_after:
        return KeepStored()
    return BeginEmpty() if inline is None else TakeInline()


def hold(facts: CertificateFacts, *, fraction: float) -> HeldCertificate:
    """Give a certificate its deadline: after 70 % to 90 % of its life. `fraction` is a random number from 0 to 1."""
    life = facts.not_after - facts.not_before
    return HeldCertificate(facts=facts, deadline=facts.not_before + life * (_EARLIEST + _SPREAD * fraction))


def decide_rotation(
    held: HeldCertificate | None, template: Template | None, *, now: datetime, is_provisional: bool = False
) -> Decision:
    """Return when to request a certificate, and why. A provisional one came inline and is replaced at once."""
    reason = _reason_now(held, template, now=now, is_provisional=is_provisional)
    if held is not None and not reason:
        return CheckAgain(until=held.deadline, reason="the certificate is good")
    if template is None:
        return CheckAgain(until=now + TEMPLATE_PERIOD, reason="the node has no address for a certificate yet")
    return Rotate(reason)


def is_interrupted(held: HeldCertificate | None, requested: Template | None, template: Template | None) -> bool:
    """Return whether a wait, for the deadline or for an answer, is for names that are no longer wanted.

    `requested` is the template of the newest request.
    """
    return bool(find_shortfall(None if held is None else held.facts, template)) and requested != template


def find_shortfall(facts: CertificateFacts | None, template: Template | None) -> str:
    """Return what a certificate lacks to fit the template; empty if nothing. More than is asked for is fine."""
    if facts is None:
        return "there is no certificate"
    if template is None:
        return ""
    if facts.common_name != template.common_name:
        return f"its name is {facts.common_name!r}, not {template.common_name!r}"
    have = {canonical_ip(ip) for ip in facts.ips}
    for what, missing in (
        ("DNS name", _missing(template.dns_names, facts.dns_names)),
        ("IP address", sorted(ip for ip in template.ips if canonical_ip(ip) not in have)),
        ("organization", _missing(template.organizations, facts.organizations)),
    ):
        if missing:
            return f"it lacks the {what} {', '.join(missing)}"
    return ""


def is_expired(facts: CertificateFacts, *, now: datetime) -> bool:
    """Return whether a certificate has expired: then it counts as none for connections."""
    return now > facts.not_after


def retry_delays(fraction: Callable[[], float]) -> Iterator[timedelta]:
    """Yield the waits after failed attempts: four growing ones with up to a tenth more, then 32 seconds each."""
    for seconds in _FIRST_TRIES:
        yield timedelta(seconds=seconds * (1 + _TRY_JITTER * fraction()))
    while True:
        yield _LATER_TRY


def _reason_now(held: HeldCertificate | None, template: Template | None, *, now: datetime, is_provisional: bool) -> str:
    """Return why a new one is due; empty if none is."""
    if held is None:
        return "there is no certificate"
    if is_provisional:
        return "the certificate came with the kubeconfig"
    if shortfall := find_shortfall(held.facts, template):
        return f"the certificate does not fit: {shortfall}"
    return f"the certificate ends at {held.facts.not_after:%Y-%m-%dT%H:%M:%SZ}" if held.deadline <= now else ""


def _missing(wanted: Iterable[str], have: Iterable[str]) -> list[str]:
    return sorted(set(wanted) - set(have))
