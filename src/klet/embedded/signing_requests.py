"""Rules for certificate signing requests: requester, immutable fields, and who writes which part of the status. Pure.

Approvals and denials are written through `approval` only, everything else of the status through `status` only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from klet.api.validation.errors import FieldError, forbidden, invalid, required
from klet.api.validation.fieldpath import SPEC, STATUS
from klet.embedded.identities import ApiUser
from klet.embedded.store import Json

APPROVED: Final = "Approved"
DENIED: Final = "Denied"
SHORTEST_LIFE: Final = 600
_DECISIONS: Final = frozenset({APPROVED, DENIED})


def requested_by(obj: Mapping[str, Any], user: ApiUser) -> Json:
    """Return the request with the real requester in it, whatever it claimed."""
    spec = {name: value for name, value in obj.get("spec", {}).items() if name not in {"uid", "groups", "extra"}}
    spec["username"] = user.name
    if user.uid:
        spec["uid"] = user.uid
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.extra:
        spec["extra"] = {name: list(values) for name, values in user.extra.items()}
    return {**obj, "spec": spec}


def created(obj: Json) -> Json:
    """Return a new request, which is open whatever was posted as its status."""
    return {**obj, "status": {}}


def find_errors(obj: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return what is wrong with a new request."""
    return tuple(_errors(obj.get("spec", {})))


def updated(new: Json, old: Mapping[str, Any], subresource: str) -> Json:
    """Return what a write makes of a request: the spec never changes."""
    status = dict(old.get("status", {}))
    given = new.get("status", {})
    decisions = _of_kind(given if subresource == "approval" else status, decides=True)
    others = _of_kind(given if subresource == "status" else status, decides=False)
    if subresource == "status" and "certificate" in given:
        status["certificate"] = given["certificate"]
    status.pop("conditions", None)
    if decisions or others:
        status["conditions"] = [*decisions, *others]
    return {**new, "spec": old["spec"], "status": status}


def find_update_errors(new: Mapping[str, Any], old: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return what is wrong with a changed status: a decision is one and final."""
    path = STATUS.child("conditions")
    before = {str(each.get("type")) for each in _of_kind(old.get("status", {}), decides=True)}
    after = {str(each.get("type")) for each in _of_kind(new["status"], decides=True)}
    errors = [forbidden(path, f"conditions may not remove {kind}") for kind in sorted(before - after)]
    if after >= _DECISIONS:
        errors.append(invalid(path, DENIED, "Approved and Denied conditions are mutually exclusive"))
    return tuple(errors)


def _errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    if not spec.get("request"):
        yield required(SPEC.child("request"), "must be a PEM certificate request")
    if not spec.get("signerName"):
        yield required(SPEC.child("signerName"))
    if not spec.get("usages"):
        yield required(SPEC.child("usages"))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < SHORTEST_LIFE:
        yield invalid(SPEC.child("expirationSeconds"), seconds, "may not specify a duration less than 600 seconds")


def _of_kind(status: Mapping[str, Any], *, decides: bool) -> Sequence[Mapping[str, Any]]:
    return [each for each in status.get("conditions", ()) if (each.get("type") in _DECISIONS) is decides]
