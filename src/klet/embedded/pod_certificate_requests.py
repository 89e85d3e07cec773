"""Rules for requests of pod certificates: new ones are open, and what was decided about one stays. Pure.

The API server also checks keys and signatures; that needs a library which klet does not load.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from klet.api.validation.errors import FieldError, invalid, not_supported
from klet.api.validation.fieldpath import STATUS, FieldPath
from klet.embedded.store import Json

LIFETIME: Final = 86400
_DECISIONS: Final = ("Issued", "Denied", "Failed")
_FINAL: Final = "immutable after PodCertificateRequest is issued, denied, or failed"


def created(obj: Json) -> Json:
    """A new request is open, whatever was posted as its status."""
    return {**obj, "spec": {"maxExpirationSeconds": LIFETIME, **obj.get("spec", {})}, "status": {}}


def updated(new: Json, old: Mapping[str, Any]) -> Json:
    """Return what a write makes of a request: the spec never changes."""
    return {**new, "spec": old["spec"]}


def find_update_errors(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Return what is wrong with a changed status: there is one decision, and it is final."""
    before, after = old.get("status") or {}, new.get("status") or {}
    path = STATUS.child("conditions")
    for position, condition in enumerate(after.get("conditions") or ()):
        yield from _condition_errors(condition, path.at(position), is_first=position == 0)
    if before.get("conditions") and before != after:
        yield invalid(STATUS, after, _FINAL)


def _condition_errors(condition: Mapping[str, Any], path: FieldPath, *, is_first: bool) -> Iterator[FieldError]:
    kind, status = str(condition.get("type", "")), str(condition.get("status", ""))
    if kind not in _DECISIONS:
        yield not_supported(path.child("type"), kind, _DECISIONS)
    elif not is_first:
        rule = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
        yield invalid(path.child("type"), kind, rule)
    if status != "True":
        yield not_supported(path.child("status"), status, ("True",))
