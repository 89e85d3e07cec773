"""Formats of names, keys, ports, identities and addresses; each check returns the messages of the broken rules.

Upstream: `apimachinery/pkg/util/validation`. An empty tuple means that the value is well formed.
"""

import ipaddress
import re
from typing import Final

Messages = tuple[str, ...]

DNS_LABEL_LIMIT: Final = 63
DNS_SUBDOMAIN_LIMIT: Final = 253
NAME_PART_LIMIT: Final = 63
LABEL_VALUE_LIMIT: Final = 63
CONFIG_KEY_LIMIT: Final = 253
PORT_NAME_LIMIT: Final = 15

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_UNDERSCORED_LABEL: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORED: Final = rf"{_UNDERSCORED_LABEL}(\.{_UNDERSCORED_LABEL})*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME_PART: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_NAME_PART})?"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_HEADER: Final = "[-A-Za-z0-9]+"

_is_label: Final = re.compile(_LABEL).fullmatch
_is_subdomain: Final = re.compile(_SUBDOMAIN).fullmatch
_is_underscored: Final = re.compile(_UNDERSCORED).fullmatch
_is_label_1035: Final = re.compile(_LABEL_1035).fullmatch
_is_name_part: Final = re.compile(_NAME_PART).fullmatch
_is_label_value: Final = re.compile(_LABEL_VALUE).fullmatch
_is_config_key: Final = re.compile(_CONFIG_KEY).fullmatch
_is_header: Final = re.compile(_HEADER).fullmatch
_is_env_name: Final = re.compile(r"[ -<>-~]+").fullmatch
_is_port_name: Final = re.compile("[-a-z0-9]+").fullmatch
_has_letter: Final = re.compile("[a-z]").search

_ALNUM_ENDS: Final = "and must start and end with an alphanumeric character"
_NAME_PART_RULE: Final = f"must consist of alphanumeric characters, '-', '_' or '.', {_ALNUM_ENDS}"


def regex_message(rule: str, pattern: str, *examples: str) -> str:
    """Return the text of a rule that is a pattern, with the API server's own way to join examples."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


_CANONICAL_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_LABEL_MESSAGE: Final = regex_message(
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALNUM_ENDS}",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_MESSAGE: Final = regex_message(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ALNUM_ENDS}",
    _SUBDOMAIN,
    "example.com",
)
_UNDERSCORED_MESSAGE: Final = regex_message(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
    f"{_ALNUM_ENDS}",
    _UNDERSCORED,
    "example.com",
)
_LABEL_1035_MESSAGE: Final = regex_message(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_NAME_PART_MESSAGE: Final = regex_message(_NAME_PART_RULE, _NAME_PART, "MyName", "my.name", "123-abc")
_LABEL_VALUE_MESSAGE: Final = regex_message(
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ALNUM_ENDS}",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_CONFIG_KEY_MESSAGE: Final = regex_message(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_HEADER_MESSAGE: Final = regex_message(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"
)


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


def no_more_than(limit: int, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


def decimal_integer(value: str) -> Messages:
    """A whole number in the one form in which it is compared."""
    if not value:
        return ("must be non-empty",)
    return () if _CANONICAL_INTEGER.fullmatch(value) else ("must be a valid decimal integer in canonical form",)


def dns_label(value: str) -> Messages:
    if len(value) <= DNS_LABEL_LIMIT and _is_label(value):
        return ()
    long = (no_more_than(DNS_LABEL_LIMIT),) if len(value) > DNS_LABEL_LIMIT else ()
    if _is_label(value):
        return long
    return (*long, "must not contain dots" if _is_subdomain(value) else _LABEL_MESSAGE)


def dns_subdomain(value: str) -> Messages:
    return _sized(value, DNS_SUBDOMAIN_LIMIT, _is_subdomain(value), _SUBDOMAIN_MESSAGE)


def dns_subdomain_with_underscore(value: str) -> Messages:
    return _sized(value, DNS_SUBDOMAIN_LIMIT, _is_underscored(value), _UNDERSCORED_MESSAGE)


def dns_1035_label(value: str) -> Messages:
    return _sized(value, DNS_LABEL_LIMIT, _is_label_1035(value), _LABEL_1035_MESSAGE)


def path_segment_name(value: str) -> Messages:
    """Check a name that need only survive in a URL path (RBAC objects)."""
    for reserved in (".", ".."):
        if value == reserved:
            return (f"may not be '{reserved}'",)
    return tuple(f"may not contain '{character}'" for character in "/%" if character in value)


def generate_name_stem(value: str) -> str:
    """Return what a generateName is checked as: the trailing dash and the character before it stand for a suffix."""
    return value[:-2] + "a" if len(value) > 1 and value.endswith("-") else value


def label_key(value: str) -> Messages:
    """Check a qualified name: an optional DNS subdomain and a slash, then a name."""
    prefix, slash, name = value.rpartition("/")
    if not slash:
        if len(name) <= NAME_PART_LIMIT and _is_name_part(name):
            return ()
        return _name_part(name)
    if "/" in prefix:
        rule = regex_message(f"a valid label key {_NAME_PART_RULE}", _NAME_PART, "MyName", "my.name", "123-abc")
        return (f"{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    found = dns_subdomain(prefix) if prefix else ("must be non-empty",)
    return (*(f"prefix part {message}" for message in found), *_name_part(name))


def annotation_key(value: str) -> Messages:
    return label_key(value.lower())


def label_value(value: str) -> Messages:
    return _sized(value, LABEL_VALUE_LIMIT, _is_label_value(value), _LABEL_VALUE_MESSAGE, unit="bytes")


def env_name(value: str) -> Messages:
    if _is_env_name(value):
        return ()
    if not value:
        return ("environment variable name must be non-empty",)
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


def config_key(value: str) -> Messages:
    found = _sized(value, CONFIG_KEY_LIMIT, _is_config_key(value), _CONFIG_KEY_MESSAGE)
    if value in {".", ".."}:
        return (*found, f"must not be '{value}'")
    return (*found, "must not start with '..'") if value.startswith("..") else found


def http_header_name(value: str) -> Messages:
    return () if _is_header(value) else (_HEADER_MESSAGE,)


def port_name(value: str) -> Messages:
    rules = (
        (len(value) > PORT_NAME_LIMIT, no_more_than(PORT_NAME_LIMIT)),
        (not _is_port_name(value), "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (not _has_letter(value), "must contain at least one letter (a-z)"),
        ("--" in value, "must not contain consecutive hyphens"),
        (value.startswith("-") or value.endswith("-"), "must not begin or end with a hyphen"),
    )
    return tuple(message for broken, message in rules if broken)


def port_number(value: int) -> Messages:
    return () if 1 <= value <= 65535 else (between(1, 65535),)


def user_or_group_id(value: int) -> Messages:
    return () if 0 <= value <= 2147483647 else (between(0, 2147483647),)


def parse_ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address as the API accepts it: leading zeros of IPv4 octets are allowed, zones are not."""
    if ":" not in value:
        value = ".".join(part.lstrip("0") or "0" if part.isdecimal() and part else part for part in value.split("."))
    if "%" in value:
        return None
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


def ip_address(value: str) -> Messages:
    return () if parse_ip(value) else ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)


def cidr(value: str) -> Messages:
    address, slash, length = value.partition("/")
    parsed = parse_ip(address) if slash and length.isdecimal() else None
    if parsed is not None and int(length) <= parsed.max_prefixlen:
        return ()
    return ("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",)


def has_backsteps(path: str) -> bool:
    return ".." in path and ".." in path.split("/")


def local_path(path: str) -> Messages:
    """Check a relative path, which must not leave its directory."""
    absolute = ("must be a relative path",) if path.startswith("/") else ()
    return (*absolute, "must not contain '..'") if has_backsteps(path) else absolute


def local_unreserved_path(path: str) -> Messages:
    """Check a local path, whose name must not be reserved for the atomic writer."""
    found = local_path(path)
    if path.startswith("..") and not path.startswith("../"):
        return (*found, "must not start with '..'")
    return found


def _name_part(name: str) -> Messages:
    size: Messages = ()
    if not name:
        size = ("name part must be non-empty",)
    elif len(name) > NAME_PART_LIMIT:
        size = (f"name part {no_more_than(NAME_PART_LIMIT, 'bytes')}",)
    return size if _is_name_part(name) else (*size, f"name part {_NAME_PART_MESSAGE}")


def _sized(value: str, limit: int, matched: object, message: str, *, unit: str = "characters") -> Messages:
    if matched and len(value) <= limit:
        return ()
    long = (no_more_than(limit, unit),) if len(value) > limit else ()
    return long if matched else (*long, message)
