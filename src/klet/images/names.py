"""Image references: what counts as one, and the tag that is meant when none is written."""

import re

from klet.errors import KletError

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*"
_REFERENCE = re.compile(
    rf"^(?:(?:{_HOST}|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?P<tag>:[\w][\w.-]{0,127})?(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$",
    re.ASCII,
)


class ImageNameError(KletError):
    """A text that is not an image reference."""


def with_default_tag(image: str) -> str:
    """Add `:latest` to a reference that has neither tag nor digest."""
    match = _REFERENCE.match(image)
    if match is None:
        raise ImageNameError(f"couldn't parse image name {image!r}: invalid reference format")
    return image if match["tag"] or match["digest"] else f"{image}:latest"
