"""How bad values are printed inside messages: strings quoted the way Go does, everything else as compact JSON.

The API server renders its internal types, whose JSON has Go field names, every field, and `null` for what is unset.
"""

import json
from collections.abc import Mapping, Sized
from datetime import UTC, datetime
from typing import Final

import msgspec

# The API server has no such limits; but a reader needs no more, and each of many messages would hold it all.
_LONGEST_TEXT: Final = 128 * 1024
_MOST_ITEMS: Final = 100
_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}

# Go's declaration order where it differs from ours, and where a message can show the type.
_FIELD_ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "SecurityContext": (
        "capabilities",
        "privileged",
        "seLinuxOptions",
        "windowsOptions",
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        "readOnlyRootFilesystem",
        "allowPrivilegeEscalation",
        "procMount",
        "seccompProfile",
        "appArmorProfile",
    ),
    "SeccompProfile": ("type", "localhostProfile"),
    "AppArmorProfile": ("type", "localhostProfile"),
    "SELinuxOptions": ("user", "role", "type", "level"),
    "WindowsSecurityContextOptions": ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName", "hostProcess"),
    "ClusterTrustBundleProjection": ("name", "signerName", "labelSelector", "optional", "path"),
    "ContainerPort": ("name", "hostPort", "containerPort", "protocol", "hostIP"),
}
_GO_NAMES: Final = {
    "seLinuxOptions": "SELinuxOptions",
    "ip": "IP",
    "gmsaCredentialSpecName": "GMSACredentialSpecName",
    "gmsaCredentialSpec": "GMSACredentialSpec",
}
# The meta types have JSON tags: their wire names are used, and empty fields are left out.
_TAGGED: Final = frozenset({"LabelSelector", "LabelSelectorRequirement", "OwnerReference"})


def go_quote(text: str) -> str:
    """Quote like Go's %q: control and unprintable characters escaped, printable Unicode kept."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_quoted_character, text)) + '"'


def render_value(value: object) -> str:
    """Render a bad value for a field error, of a long one the beginning."""
    return go_quote(_shown(value)) if isinstance(value, str) else _json(value)


def render_go_struct(value: msgspec.Struct) -> str:
    """Render a struct the way Go's %+v prints it: `{Name: HostPort:0}`."""
    return "{" + " ".join(f"{_go_name(name)}:{'' if item is None else item}" for name, item in _fields(value)) + "}"


def _json(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case datetime():
            return f'"{value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}"'
        case msgspec.Struct():
            return _struct_json(value)
        case Mapping():
            pairs = (f"{_json(key)}:{_json(value[key])}" for key in sorted(value)[:_MOST_ITEMS])
            return "{" + ",".join(pairs) + _more(value) + "}" if value else "null"
        case tuple() | list():
            return "[" + ",".join(map(_json, value[:_MOST_ITEMS])) + _more(value) + "]" if value else "null"
        case _:
            return json.dumps(_shown(str(value)), ensure_ascii=False)


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _more(items: Sized) -> str:
    return ",…" if len(items) > _MOST_ITEMS else ""


def _struct_json(value: msgspec.Struct) -> str:
    if type(value).__name__ in _TAGGED:
        pairs = ((name, item) for name, item in _fields(value) if item not in (None, "", (), {}))
    else:
        pairs = ((_go_name(name), item) for name, item in _fields(value))
    return "{" + ",".join(f'"{name}":{_json(item)}' for name, item in pairs) + "}"


def _fields(value: msgspec.Struct) -> list[tuple[str, object]]:
    kind = type(value)
    found = {field.encode_name: getattr(value, field.name) for field in msgspec.structs.fields(kind)}
    order = _FIELD_ORDER.get(kind.__name__)
    return list(found.items()) if order is None else [(name, found[name]) for name in order]


def _go_name(wire_name: str) -> str:
    return _GO_NAMES.get(wire_name) or wire_name[:1].upper() + wire_name[1:]


def _quoted_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
