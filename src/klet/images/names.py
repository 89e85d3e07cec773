"""Image references: what counts as one, and the tag that is meant when none is written."""

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


class ImageNameError(KletError):
    """A text that is not an image reference."""


def with_default_tag(image: str) -> str:
    """Add `:latest` to a reference that has neither tag nor digest."""
    match = _REFERENCE.fullmatch(image)
    if match is None or (why := _unusable(match["name"])):
        detail = why if match else _why_unreadable(image)
        raise ImageNameError(f'couldn\'t parse image name "{image}": {detail}')
    return image if match["tag"] or match["digest"] else f"{image}:latest"


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
