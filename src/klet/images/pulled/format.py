"""The files of pulled images, as upstream writes them: one JSON object in a line, named after what it is about. Pure.

`pulling/` has an ImagePullIntent for each image whose pull has begun, `pulled/` an ImagePulledRecord for each image
that was pulled.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from klet.errors import KletError
from klet.images.sources import ImagePullSecret, ImagePullServiceAccount
from klet.model.foreign_text import LONGEST_WORD, shorten

API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
OLDER_VERSIONS: Final = frozenset({"kubelet.config.k8s.io/v1alpha1"})
"""The same fields under another name; such files are written again at start."""
INTENT: Final = "ImagePullIntent"
RECORD: Final = "ImagePulledRecord"
PREFIX: Final = "sha256-"
SIZE_LIMIT: Final = 1 << 20

T = TypeVar("T", bound="_Headed")


class BadPullFile(KletError):
    """The content is none of an intent or a record; the message is the rule that is broken."""


class _Headed(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """As upstream, a field that is not known makes a file unreadable: it may restrict who may use the image."""

    kind: str
    api_version: str


class ImagePullIntent(_Headed, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A pull has begun, and its end was not recorded."""

    image: str
    """As the pod names it."""


class ImagePullCredentials(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Who has proved that they may pull from a repository."""

    kubernetes_secrets: tuple[ImagePullSecret, ...] = ()
    kubernetes_service_accounts: tuple[ImagePullServiceAccount, ...] = ()
    node_pods_accessible: bool = False
    """Every pod of the node: it was pulled without credentials, or with those of the node."""


class ImagePulledRecord(
    _Headed, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """An image that the agent has pulled."""

    last_updated_time: datetime | None
    image_ref: str
    credential_mapping: Mapping[str, ImagePullCredentials] = {}
    """By repository, without tag and digest."""


def new_record(ref: str, mapping: Mapping[str, ImagePullCredentials], *, now: datetime) -> ImagePulledRecord:
    return ImagePulledRecord(
        kind=RECORD, api_version=API_VERSION, last_updated_time=whole_seconds(now), image_ref=ref,
        credential_mapping=mapping,
    )  # fmt: skip


def whole_seconds(now: datetime) -> datetime:
    """Return a time as upstream's files have it."""
    return now.astimezone(UTC).replace(microsecond=0)


def file_name(subject: str) -> str:
    """Return the name of the file about an image or an image reference."""
    return f"{PREFIX}{hashlib.sha256(subject.encode('utf-8', 'surrogatepass')).hexdigest()}"


def is_file_name(name: str) -> bool:
    """Return whether a name in the directories is one of such a file; upstream's temporary files end in `.tmp`."""
    return name.startswith(PREFIX) and not name.endswith(".tmp")


def encode_intent(image: str) -> bytes:
    return _encode(ImagePullIntent(kind=INTENT, api_version=API_VERSION, image=image))


def encode_record(record: ImagePulledRecord) -> bytes:
    mapping = {repository: record.credential_mapping[repository] for repository in sorted(record.credential_mapping)}
    return _encode(msgspec.structs.replace(record, api_version=API_VERSION, credential_mapping=mapping))


def decode_intent(data: bytes) -> ImagePullIntent:
    """Raise BadPullFile for what is no intent."""
    return _decode(data, ImagePullIntent, INTENT)


def decode_record(data: bytes) -> ImagePulledRecord:
    """Raise BadPullFile for what is no record."""
    return _decode(data, ImagePulledRecord, RECORD)


def is_older(value: ImagePullIntent | ImagePulledRecord) -> bool:
    """Return whether a file has to be written again in the version of today."""
    return value.api_version in OLDER_VERSIONS


def _encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _decode(data: bytes, form: type[T], kind: str) -> T:
    try:
        value = msgspec.json.decode(data, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadPullFile(shorten(str(error), LONGEST_WORD)) from None
    if value.kind != kind:
        raise BadPullFile(f"field kind is {shorten(value.kind, LONGEST_WORD)!r}, expected {kind!r}")
    if value.api_version != API_VERSION and value.api_version not in OLDER_VERSIONS:
        raise BadPullFile(f"field apiVersion is {shorten(value.api_version, LONGEST_WORD)!r}, expected {API_VERSION!r}")
    return value
