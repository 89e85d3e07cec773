"""Who a pod is: identifiers, where it came from, and how it is written in messages."""

from typing import NewType

from klet.api.pod import Pod
from klet.model.causes import Subject

PodUID = NewType("PodUID", str)

SOURCE_ANNOTATION = "kubernetes.io/config.source"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
SEEN_ANNOTATION = "kubernetes.io/config.seen"
HASH_ANNOTATION = "kubernetes.io/config.hash"

API_SOURCE = "api"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
LONGEST_GRACE = 100 * 365 * 24 * 3600
"""Seconds. The API takes grace periods that no clock can count; all of them mean that nobody is in a hurry."""


def uid_of(pod: Pod) -> PodUID:
    return PodUID(pod.metadata.uid)


def full_name(pod: Pod) -> str:
    """`name_namespace`, unique among the pods of one source."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}"


def format_pod(pod: Pod) -> str:
    """`name_namespace(uid)`, as messages name a pod."""
    return f"{full_name(pod)}({pod.metadata.uid})"


def subject_of(pod: Pod, container: str = "") -> Subject:
    return Subject(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid, container=container)


def is_mirror(pod: Pod) -> bool:
    return MIRROR_ANNOTATION in pod.metadata.annotations


def is_static(pod: Pod) -> bool:
    source = pod.metadata.annotations.get(SOURCE_ANNOTATION)
    return source is not None and source != API_SOURCE


def is_critical(pod: Pod) -> bool:
    """True for pods that the node must not lose: static, mirror, or of system priority."""
    priority = pod.spec.priority
    return is_static(pod) or is_mirror(pod) or (priority is not None and priority >= SYSTEM_CRITICAL_PRIORITY)
