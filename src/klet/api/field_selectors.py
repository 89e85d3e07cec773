"""Field selectors of list and watch requests, such as `spec.nodeName=n,status.phase!=Failed`.

Upstream: apimachinery's fields package, and per kind the fields that its registry offers.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from klet.api.kinds import Kind
from klet.api.selectors import SelectorError


class FieldTerm(Struct, frozen=True):
    """One field that must, or must not, have a value; a field that is not there has the empty one."""

    field: str
    value: str
    negated: bool = False

    def matches(self, fields: Mapping[str, str]) -> bool:
        return (fields.get(self.field, "") == self.value) is not self.negated

    def __str__(self) -> str:
        escaped = re.sub(r"([\\,=])", r"\\\1", self.value)
        return f"{self.field}{'!=' if self.negated else '='}{escaped}"


class FieldSelector(Struct, frozen=True):
    """Terms that must all hold."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all(term.matches(fields) for term in self.terms)

    def exact(self, field: str) -> str | None:
        """Return the value that a field must have, if one is asked for."""
        return next((term.value for term in self.terms if term.field == field and not term.negated), None)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def parse_field_selector(text: str) -> FieldSelector:
    return FieldSelector(tuple(_term(part, text) for part in _split(text) if part))


def check_fields(selector: FieldSelector, kind: Kind) -> FieldSelector:
    """Refuse fields that the kind does not offer, and put the real names in place of aliases."""
    own = _FIELDS.get((kind.group, kind.plural))
    terms = []
    for term in selector.terms:
        name = _ALIASES.get((kind.plural, term.field), term.field)
        if name not in (own or ()) and name not in _METADATA[: 2 if kind.namespaced or own is None else 1]:
            if own is None:
                raise SelectorError(
                    f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
                )
            raise SelectorError(f"field label not supported: {name}")
        terms.append(FieldTerm(name, term.value, term.negated))
    return FieldSelector(tuple(terms))


def selectable_fields(kind: Kind, data: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the fields of an object, given as plain data, that can be selected by."""
    names = (*_METADATA, *_FIELDS.get((kind.group, kind.plural), ()))
    fields = {name: _lookup(data, name) for name in names}
    if kind.plural == "pods":
        fields["status.podIPs"] = ""  # upstream offers it and never fills it in
    if kind.plural == "events" and not kind.group:
        fields["source"] = _lookup(data, "source.component") or _lookup(data, "reportingComponent")
    return fields


_METADATA: Final = ("metadata.name", "metadata.namespace")
_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_FIELDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    ("", "events"): (
        *(f"involvedObject.{name}" for name in _REFERENCE),
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    ("events.k8s.io", "events"): (
        *(f"regarding.{name}" for name in _REFERENCE),
        "reason",
        "reportingController",
        "type",
    ),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "secrets"): ("type",),
    ("", "namespaces"): ("status.phase",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("certificates.k8s.io", "certificatesigningrequests"): ("spec.signerName",),
    ("certificates.k8s.io", "podcertificaterequests"): ("spec.signerName", "spec.podName", "spec.nodeName"),
    ("resource.k8s.io", "resourceslices"): ("spec.driver", "spec.nodeName"),
}
_ALIASES: Final = {("pods", "spec.host"): "spec.nodeName"}
_BOOLEANS: Final = frozenset(("spec.hostNetwork", "spec.unschedulable"))
_TERM: Final = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)


def _split(text: str) -> list[str]:
    """Cut at commas that no backslash stands before."""
    return [part.group() for part in re.finditer(r"(?:\\.|[^,\\]|\\$)+", text, re.DOTALL)]


def _term(part: str, whole: str) -> FieldTerm:
    match = _TERM.fullmatch(part)
    if match is None:
        raise SelectorError(f"invalid selector: '{whole}'; can't understand '{part}'")
    return FieldTerm(match[1], _unescape(match[3]), match[2] == "!=")


def _unescape(value: str) -> str:
    plain = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("\\", ",", "="):
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{escaped}")
            plain.append(escaped)
        elif character == "=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            plain.append(character)
    return "".join(plain)


def _lookup(data: Mapping[str, Any], path: str) -> str:
    here: Any = data
    for name in path.split("."):
        here = here.get(name) if isinstance(here, Mapping) else None
    if path in _BOOLEANS:
        return "true" if here else "false"
    return "" if here is None else str(here)
