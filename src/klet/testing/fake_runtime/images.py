"""Images: what a registry has, and what the fake runtime's store holds under which names."""

import hashlib
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct, field

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import RpcFailure
from klet.wire import cri_v1_pb2 as pb

_REFERENCE = re.compile(r"[a-z0-9._:/-]+(?::[A-Za-z0-9._-]+)?(?:@sha256:[0-9a-f]{64})?")


class FakeImage(Struct, frozen=True):
    """An image that can be pulled or loaded. Id and digest are derived from the name unless given."""

    name: str
    size: int = 4 << 20
    pull_time: timedelta = timedelta()
    pull_failure: RpcFailure | None = None
    id: str = ""
    digest: str = ""
    user: str = ""
    pinned: bool = False
    login: tuple[str, str] | None = None
    """The user name and password that a pull needs."""

    @property
    def image_id(self) -> str:
        return self.id or f"sha256:{_hash('config', self.name)}"

    @property
    def manifest_digest(self) -> str:
        return self.digest or f"sha256:{_hash('manifest', self.name)}"


Registry: TypeAlias = Callable[[str], FakeImage | None]


def nowhere(_name: str) -> FakeImage | None:
    """Return a registry without any image."""
    return None


def registry_of(*images: FakeImage) -> Registry:
    """Return a registry with these images and no others; names are compared in their full form."""
    by_name = {normalize(image.name): image for image in images}
    return by_name.get


def any_image(*, size: int = 4 << 20, pull_time: timedelta = timedelta()) -> Registry:
    """Return a registry that has every image one asks for."""
    return lambda name: FakeImage(name=name, size=size, pull_time=pull_time)


class StoredImage(Struct):
    """An image in the store."""

    image: FakeImage
    tags: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    was_loaded: bool = False
    """Whether it was there before any pull of it."""

    def message(self) -> pb.Image:
        answer = pb.Image(
            id=self.image.image_id,
            repo_tags=self.tags,
            repo_digests=self.digests,
            size=self.image.size,
            pinned=self.image.pinned,
        )
        if self.image.user.isdecimal():
            answer.uid.value = int(self.image.user)
        else:
            answer.username = self.image.user
        return answer


class ImageStore:
    """Images by id, found by id, short id, tag or digest."""

    def __init__(self) -> None:
        self._images: dict[str, StoredImage] = {}

    def all(self) -> list[StoredImage]:
        return list(self._images.values())

    def add(self, image: FakeImage, *, pulled_as: str | None = None) -> StoredImage:
        """Load an image; a pulled one also gets its repository digest, as containerd does it."""
        name = normalize(pulled_as or image.name)
        repository, _, digest = name.partition("@")
        stored = self._images.setdefault(image.image_id, StoredImage(image, was_loaded=pulled_as is None))
        if not digest and name not in stored.tags:
            self._take_tag(name)
            stored.tags.append(name)
        if pulled_as is not None:
            reference = f"{_untagged(repository)}@{digest or image.manifest_digest}"
            if reference not in stored.digests:
                stored.digests.append(reference)
        return stored

    def find(self, reference: str) -> StoredImage | None:
        """Find by full or short id, else by name."""
        if not reference:
            raise RpcFailure(Code.UNKNOWN, 'can not resolve "" locally: ambiguous digest string')
        if (image := self._images.get(reference)) is not None:
            return image
        wanted = reference if reference.startswith("sha256:") else f"sha256:{reference}"
        matches = [image for id_, image in self._images.items() if id_.startswith(wanted)]
        if len(matches) == 1:
            return matches[0]
        name = normalize(reference)
        return next((image for image in self._images.values() if name in image.tags or name in image.digests), None)

    def remove(self, stored: StoredImage) -> None:
        """Remove the image with all of its names."""
        del self._images[stored.image.image_id]

    def used_bytes(self) -> int:
        return sum(stored.image.size for stored in self._images.values())

    def _take_tag(self, name: str) -> None:
        """Move a tag to the image that got it last."""
        for stored in self._images.values():
            if name in stored.tags:
                stored.tags.remove(name)


def normalize(name: str) -> str:
    """Return the full form of an image name: with host, with tag."""
    repository, at, digest = name.partition("@")
    first, slash, _ = repository.partition("/")
    if not slash:
        repository = f"docker.io/library/{repository}"
    elif not ("." in first or ":" in first or first == "localhost"):
        repository = f"docker.io/{repository}"
    if not digest and ":" not in repository.rpartition("/")[2]:
        repository = f"{repository}:latest"
    return f"{repository}{at}{digest}"


def is_valid_reference(name: str) -> bool:
    return _REFERENCE.fullmatch(name) is not None


def _untagged(repository: str) -> str:
    path, slash, last = repository.rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def _hash(kind: str, name: str) -> str:
    return hashlib.sha256(f"{kind} of {normalize(name)}".encode()).hexdigest()
