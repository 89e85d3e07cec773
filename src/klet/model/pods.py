"""Identity of a pod: identifiers, source, and how messages name it."""

import re
from functools import lru_cache
from typing import Final, Self

from klet.api.pod import Pod
from klet.api.pod_annotations import MIRROR_ANNOTATION, SOURCE_ANNOTATION
from klet.errors import KletError
from klet.model.causes import FindingSubject

LONGEST_UID: Final = 253
UID_RULE: Final = (
    f"must be at most {LONGEST_UID} letters, digits, '-' and '.', and begin and end with a letter or digit"
)
_UID: Final = re.compile(r"[A-Za-z0-9](?:[-.A-Za-z0-9]*[A-Za-z0-9])?")


class BadPodUID(KletError):
    """A text that is no pod's UID."""


class _Checked(type):
    """Makes `isinstance(text, PodUID)` a question about the text: it narrows the type, and msgspec decodes by it."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, str) and len(value) <= LONGEST_UID and _is_uid(value)


class PodUID(str, metaclass=_Checked):
    """The UID of a pod. It names directories and cgroups, so it is always a plain, bounded name.

    `PodUID(text)` raises BadPodUID for anything else. The value is the text itself, a `str`: no other type is as fast
    in a dictionary, and msgspec encodes no subclass of it.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if not isinstance(text, cls):
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise BadPodUID(f"invalid pod UID {shown!r}: {UID_RULE}")
        return text


_SHOWN: Final = 64


@lru_cache(maxsize=1024)
def _is_uid(text: str) -> bool:
    return _UID.fullmatch(text) is not None


API_SOURCE = "api"
FILE_SOURCE = "file"
HTTP_SOURCE = "http"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
LONGEST_GRACE = 100 * 365 * 24 * 3600
"""Seconds. The API accepts grace periods that overflow a clock; they are cut to this."""


def uid_of(pod: Pod) -> PodUID:
    return PodUID(pod.metadata.uid)


def full_name(pod: Pod) -> str:
    """Return `name_namespace`, unique among the pods of one source."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}"


def format_pod(pod: Pod) -> str:
    """Return `name_namespace(uid)`, as messages name a pod."""
    return f"{full_name(pod)}({pod.metadata.uid})"


def subject_of(pod: Pod, container: str = "") -> FindingSubject:
    return FindingSubject(
        namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, container=container
    )


def is_mirror(pod: Pod) -> bool:
    return MIRROR_ANNOTATION in pod.metadata.annotations


def is_static(pod: Pod) -> bool:
    source = pod.metadata.annotations.get(SOURCE_ANNOTATION)
    return source is not None and source != API_SOURCE


def is_critical(pod: Pod) -> bool:
    """Return True for pods that the node must not lose: static, mirror, or of system priority."""
    priority = pod.spec.priority
    return is_static(pod) or is_mirror(pod) or (priority is not None and priority >= SYSTEM_CRITICAL_PRIORITY)
