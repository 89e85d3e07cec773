"""Image references: what counts as one, the tag that is meant when none is written, and the repository."""

import re

from klet.errors import KletError

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:(?:{_HOST}|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?P<tag>:[\w][\w.-]{0,127})?(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
_BARE_ID = re.compile("[a-f0-9]{64}")
_LONGEST_NAME = 255
_DEFAULT_DOMAIN = "docker.io"
_OLD_DEFAULT_DOMAIN = "index.docker.io"


class ImageNameError(KletError):
    """A text that is not an image reference."""


def with_default_tag(image: str) -> str:
    """Add `:latest` to a reference that has neither tag nor digest."""
    match = _parse(image)
    return image if match["tag"] or match["digest"] else f"{image}:latest"


def repository_of(image: str) -> str:
    """Return the full name of a reference's repository, without tag and digest: `docker.io/library/busybox`."""
    name = _parse(image)["name"]
    domain, slash, path = name.partition("/")
    if not slash or not _is_domain(domain):
        domain, path = _DEFAULT_DOMAIN, name
    if domain == _OLD_DEFAULT_DOMAIN:
        domain = _DEFAULT_DOMAIN
    if domain == _DEFAULT_DOMAIN and "/" not in path:
        path = f"library/{path}"
    return f"{domain}/{path}"


def registry_host(repository: str) -> str:
    """Return the host of a full repository name, without a port or the brackets of an address."""
    domain = repository.partition("/")[0]
    host, colon, port = domain.rpartition(":")
    return (host if colon and port.isdecimal() else domain).strip("[]")


def digest_of(image: str) -> str:
    """Return the digest in a reference; empty without one."""
    return image.partition("@")[2]


def _parse(image: str) -> re.Match[str]:
    match = _REFERENCE.fullmatch(image)
    if match is None or (why := _unusable(match["name"])):
        detail = why if match else _why_unreadable(image)
        raise ImageNameError(f'couldn\'t parse image name "{image}": {detail}')
    return match


def _is_domain(text: str) -> bool:
    return any(sign in text for sign in ".:") or text == "localhost" or text != text.lower()


def _unusable(name: str) -> str:
    if _BARE_ID.fullmatch(name):
        return f"invalid repository name ({name}), cannot specify 64-byte hexadecimal strings"
    if len(name) > _LONGEST_NAME:
        return f"repository name must not be more than {_LONGEST_NAME} characters"
    return ""


def _why_unreadable(image: str) -> str:
    name = image.partition("@")[0]
    if name != name.lower() and _REFERENCE.fullmatch(name.lower()):
        return "invalid reference format: repository name must be lowercase"
    return "invalid reference format"
