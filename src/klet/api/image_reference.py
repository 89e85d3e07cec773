"""The tag of an image reference, by the rules of normalized Docker references."""

import re
from typing import Final

_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN: Final = re.compile(rf"(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?", re.ASCII)
_PATH: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
_KNOWN_DIGESTS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
_BARE_ID: Final = re.compile(r"[a-f0-9]{64}")
_NAME_LIMIT: Final = 255


def image_tag(image: str) -> str:
    """Return the tag; `latest` without tag and digest, empty for a digest alone or an unreadable name."""
    rest, at, digest = image.partition("@")
    if at and not _is_digest(digest):
        return ""
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        name, tag, tagged = rest, "", False
    else:
        tagged = True
    if not _is_name(name) or (tagged and not _TAG.fullmatch(tag)):
        return ""
    if tagged:
        return tag
    return "" if at else "latest"


def _is_name(name: str) -> bool:
    if _BARE_ID.fullmatch(name):
        return False
    first, slash, remainder = name.partition("/")
    if slash and (any(mark in first for mark in ".:") or first == "localhost" or first.lower() != first):
        domain, path = first, remainder
    else:
        domain, path = "docker.io", name if slash else f"library/{name}"
    if len(f"{domain}/{path}") > _NAME_LIMIT:
        return False
    return bool(_DOMAIN.fullmatch(domain) and _PATH.fullmatch(path))


def _is_digest(digest: str) -> bool:
    algorithm, _, value = digest.partition(":")
    expected = _KNOWN_DIGESTS.get(algorithm)
    if expected is None:
        return bool(_DIGEST.fullmatch(digest))
    return len(value) == expected and re.fullmatch("[a-f0-9]+", value) is not None
