"""References to images, by the rules of normalized Docker references (upstream: distribution/reference). Pure."""

import re
from typing import Final

from msgspec import Struct

from klet.errors import KletError

_COMPONENT: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REFERENCE: Final = re.compile(
    rf"(?:(?P<domain>(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?)/)?(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_DIGEST: Final = re.compile(r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+")
_DIGEST_LENGTHS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
_BARE_ID: Final = re.compile(r"[a-f0-9]{64}")
_LONGEST_PATH: Final = 255
_DEFAULT_DOMAIN: Final = "docker.io"
_OLD_DEFAULT_DOMAIN: Final = "index.docker.io"
_OFFICIAL: Final = "library/"
_LATEST: Final = "latest"


class BadImageReference(KletError):
    """A text that is not a reference to an image; the message is upstream's."""


class ImageReference(Struct, frozen=True):
    """A reference in its parts."""

    repository: str
    """With the registry, which is `docker.io` where none is written: `docker.io/library/busybox`."""
    tag: str = ""
    digest: str = ""


def parse_image_reference(image: str) -> ImageReference:
    """Return the parts of a reference; the tag is `latest` where neither tag nor digest is written.

    Raises BadImageReference.
    """
    if _BARE_ID.fullmatch(image):
        raise BadImageReference(f"invalid repository name ({image}), cannot specify 64-byte hexadecimal strings")
    domain, remainder = _split_domain(image)
    remote = remainder.partition(":")[0]
    if remote != remote.lower():
        raise BadImageReference(f"invalid reference format: repository name ({remote}) must be lowercase")
    full = f"{domain}/{remainder}"
    match = _REFERENCE.fullmatch(full)
    if match is None:
        is_upper = _REFERENCE.fullmatch(full.lower()) is not None
        raise BadImageReference("repository name must be lowercase" if is_upper else "invalid reference format")
    if len(match["path"]) > _LONGEST_PATH:
        raise BadImageReference(f"repository name must not be more than {_LONGEST_PATH} characters")
    tag, digest = match["tag"] or "", match["digest"] or ""
    if digest and (problem := _find_digest_problem(digest)):
        raise BadImageReference(problem)
    repository = match["path"] if match["domain"] is None else f"{match['domain']}/{match['path']}"
    return ImageReference(repository, tag if tag or digest else _LATEST, digest)


def image_tag(image: str) -> str:
    """Return the tag; `latest` without tag and digest, empty for a digest alone or an unreadable name."""
    try:
        return parse_image_reference(image).tag
    except BadImageReference:
        return ""


def _split_domain(image: str) -> tuple[str, str]:
    """Return the registry, and the rest with its tag and digest. A name without a slash is never a registry."""
    first, slash, rest = image.partition("/")
    if not slash or not _is_domain(first):
        domain, rest = _DEFAULT_DOMAIN, image
    else:
        domain = _DEFAULT_DOMAIN if first == _OLD_DEFAULT_DOMAIN else first
    if domain == _DEFAULT_DOMAIN and "/" not in rest:
        rest = f"{_OFFICIAL}{rest}"
    return domain, rest


def _is_domain(text: str) -> bool:
    return any(sign in text for sign in ".:") or text == "localhost" or text != text.lower()


def _find_digest_problem(digest: str) -> str:
    """Return why a digest is none; empty when it is one."""
    algorithm, _, value = digest.partition(":")
    length = _DIGEST_LENGTHS.get(algorithm)
    if length is None:
        return "unsupported digest algorithm" if _DIGEST.fullmatch(digest) else "invalid checksum digest format"
    if len(value) != length:
        return "invalid checksum digest length"
    return "" if value == value.lower() else "invalid checksum digest format"
