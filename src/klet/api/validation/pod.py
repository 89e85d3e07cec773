"""Validation of pods as they are created (upstream: `ValidatePodCreate`)."""

from klet.api.pod import Pod
from klet.api.validation.annotations import validate_annotations_match_fields, validate_pod_annotations
from klet.api.validation.containers import validate_image_blanks
from klet.api.validation.errors import FieldError, FieldErrors, forbidden
from klet.api.validation.fieldpath import METADATA, SPEC
from klet.api.validation.metadata import validate_object_meta
from klet.api.validation.options import API_POD, PodValidationOptions
from klet.api.validation.podspec import validate_pod_spec


def validate_pod_create(pod: Pod, options: PodValidationOptions = API_POD) -> tuple[FieldError, ...]:
    """Return every rule that a new pod, with its defaults applied, breaks."""
    return (*validate_pod(pod, options), *_create_only(pod))


def validate_pod(pod: Pod, options: PodValidationOptions) -> FieldErrors:
    """Check the rules that hold for a pod at any time: metadata, annotations and spec."""
    yield from validate_object_meta(pod.metadata, METADATA)
    if pod.metadata.annotations:
        yield from validate_pod_annotations(pod.metadata.annotations, pod.spec)
    yield from validate_pod_spec(pod.spec, pod.metadata, SPEC, options)
    if not pod.spec.service_account_name:
        yield from _tokens_without_account(pod)
    for position, container in enumerate(pod.spec.containers):
        yield from validate_image_blanks(container, SPEC.child("containers").at(position))
    for position, container in enumerate(pod.spec.init_containers):
        yield from validate_image_blanks(container, SPEC.child("initContainers").at(position))


def _create_only(pod: Pod) -> FieldErrors:
    if pod.spec.ephemeral_containers:
        yield forbidden(SPEC.child("ephemeralContainers"), "cannot be set on create")
    if pod.spec.node_name and pod.spec.scheduling_gates:
        yield forbidden(SPEC.child("nodeName"), "cannot be set until all schedulingGates have been cleared")
    yield from validate_annotations_match_fields(pod)


def _tokens_without_account(pod: Pod) -> FieldErrors:
    for position, volume in enumerate(pod.spec.volumes):
        sources = () if volume.projected is None else volume.projected.sources
        for source_position, source in enumerate(sources):
            if source.service_account_token is not None:
                here = SPEC.child("volumes").at(position).child("projected", "sources").at(source_position)
                message = "must not be specified when serviceAccountName is not set"
                yield forbidden(here.child("serviceAccountToken"), message)
