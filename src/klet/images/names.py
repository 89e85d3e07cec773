"""Names of images as pods write them: the tag that is meant when none is written, and the repository."""

from klet.api.image_reference import BadImageReference, ImageReference, parse_image_reference
from klet.api.validation.rendering import go_quote
from klet.errors import KletError


class ImageNameError(KletError):
    """A text that is not an image reference."""


def with_default_tag(image: str) -> str:
    """Add `:latest` to a reference that has neither tag nor digest."""
    reference = _parse(image)
    return image if reference.digest or image.endswith(f":{reference.tag}") else f"{image}:{reference.tag}"


def repository_of(image: str) -> str:
    """Return the full name of a reference's repository, without tag and digest: `docker.io/library/busybox`."""
    return _parse(image).repository


def registry_host(repository: str) -> str:
    """Return the host of a full repository name, without a port or the brackets of an address."""
    domain = repository.partition("/")[0]
    host, colon, port = domain.rpartition(":")
    return (host if colon and port.isdecimal() else domain).strip("[]")


def digest_of(image: str) -> str:
    """Return the digest in a reference; empty without one."""
    return image.partition("@")[2]


def _parse(image: str) -> ImageReference:
    try:
        return parse_image_reference(image)
    except BadImageReference as error:
        raise ImageNameError(f"couldn't parse image name {go_quote(image)}: {error}") from None
