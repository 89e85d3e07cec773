"""Rules of single kinds when they are written: defaults, what the server fills in, what may change."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from klet.api.codec import DecodeError, convert, to_builtins
from klet.api.defaults import default_pod
from klet.api.kinds import Kind, find_kind
from klet.api.pod import Pod
from klet.api.validation import formats
from klet.api.validation.errors import FieldError, invalid
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.formats import Messages
from klet.api.validation.metadata import IMMUTABLE, NameFormat, name_format_of
from klet.api.validation.pod import validate_pod_create
from klet.api.validation.status import validate_pod_status_update
from klet.api.validation.updates import validate_ephemeral_containers_update, validate_pod_update
from klet.embedded import pod_certificate_requests, refusals, signing_requests
from klet.embedded.store import Json
from klet.model.qos import compute_qos


class ObjectUpdate(Struct, frozen=True):
    """A write to an object that is there: what it would become, what it is, and which part was written."""

    new: Json
    old: Mapping[str, Any]
    subresource: str


class RestStrategy(Struct, frozen=True, kw_only=True):
    """How objects of a kind are written (upstream: its REST strategy); unchanged by default."""

    has_status: bool = False
    """Whether the status is written apart from the rest."""
    status_parts: tuple[str, ...] = ("status",)
    """The subresources that write the status."""
    metadata_with_status: tuple[str, ...] = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
    """What of the metadata a write of the status may change."""
    create: Callable[[Json], Json] = lambda obj: obj
    update: Callable[[ObjectUpdate], Json] = lambda change: change.new
    name_format: Callable[[Json], NameFormat] | None = None
    """The rule for the name of one object, where it depends on the object."""


def strategy_of(kind: Kind) -> RestStrategy:
    return _STRATEGIES.get(kind.name, _PLAIN)


def name_format_for(kind: Kind, obj: Json) -> NameFormat:
    """Return the rule for the name of an object."""
    of_object = strategy_of(kind).name_format
    return name_format_of(kind.name) if of_object is None else of_object(obj)


def _create_pod(obj: Json) -> Json:
    pod = default_pod(_pod(obj))
    if errors := validate_pod_create(pod):
        raise refusals.invalid(_POD, pod.metadata.name, errors)
    status = {"phase": "Pending", "qosClass": compute_qos(pod)}
    metadata = {**obj["metadata"], "generation": 1}
    return {**obj, "metadata": metadata, "spec": to_builtins(pod.spec), "status": status}


def _update_pod(change: ObjectUpdate) -> Json:
    before, after = _pod(change.old), default_pod(_pod(change.new))
    if errors := _pod_errors(after, before, change.subresource):
        raise refusals.invalid(_POD, before.metadata.name, errors)
    if change.subresource == "status":
        return change.new
    spec = to_builtins(after.spec)
    metadata = change.new["metadata"]
    if spec != change.old["spec"]:
        metadata = {**metadata, "generation": change.old["metadata"].get("generation", 0) + 1}
    return {**change.new, "metadata": metadata, "spec": spec}


def _pod_errors(after: Pod, before: Pod, subresource: str) -> tuple[FieldError, ...]:
    if subresource == "status":
        return validate_pod_status_update(after, before)
    if subresource == "ephemeralcontainers":
        return validate_ephemeral_containers_update(after, before)
    return validate_pod_update(after, before)


def _create_namespace(obj: Json) -> Json:
    name = obj["metadata"].get("name", "")
    labels = {**obj["metadata"].get("labels", {}), "kubernetes.io/metadata.name": name}
    return {
        **obj,
        "metadata": {**obj["metadata"], "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _create_signing_request(obj: Json) -> Json:
    if errors := signing_requests.find_errors(obj):
        raise refusals.invalid(_SIGNING_REQUEST, obj["metadata"].get("name", ""), errors)
    return signing_requests.created(obj)


def _update_signing_request(change: ObjectUpdate) -> Json:
    written = signing_requests.updated(change.new, change.old, change.subresource)
    if errors := signing_requests.find_update_errors(written, change.old):
        raise refusals.invalid(_SIGNING_REQUEST, change.old["metadata"]["name"], errors)
    return written


def _update_pod_certificate_request(change: ObjectUpdate) -> Json:
    written = pod_certificate_requests.updated(change.new, change.old)
    if errors := tuple(pod_certificate_requests.find_update_errors(written, change.old)):
        raise refusals.invalid(_POD_CERTIFICATE_REQUEST, change.old["metadata"]["name"], errors)
    return written


def _update_trust_bundle(change: ObjectUpdate) -> Json:
    if errors := tuple(_trust_bundle_errors(change.new, change.old)):
        raise refusals.invalid(_TRUST_BUNDLE, change.old["metadata"]["name"], errors)
    return change.new


def _trust_bundle_name(obj: Mapping[str, Any]) -> NameFormat:
    """Return the rule for a bundle's name: `<signer with / as :>:<name>`; one without a signer has no colon."""
    return partial(_trust_bundle_name_errors, _signer_of(obj))


def _trust_bundle_errors(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    if _signer_of(new) != _signer_of(old):
        yield invalid(FieldPath("spec").child("signerName"), _signer_of(new), IMMUTABLE)


def _trust_bundle_name_errors(signer: str, name: str) -> Messages:
    if not signer:
        if ":" in name:
            return ('ClusterTrustBundle without signer name must not have ":" in its name',)
        return formats.dns_subdomain(name)
    prefix = f"{signer.replace('/', ':')}:"
    if not name.startswith(prefix):
        return (f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}",)
    return formats.dns_subdomain(name.removeprefix(prefix))


def _signer_of(obj: Mapping[str, Any]) -> str:
    signer = (obj.get("spec") or {}).get("signerName") or ""
    return signer if isinstance(signer, str) else ""


def _pod(obj: Mapping[str, Any]) -> Pod:
    try:
        return convert(Pod, obj)
    except DecodeError as error:
        raise refusals.bad_request(f'Pod in version "v1" cannot be handled as a Pod: {error}') from error


def _found(api_version: str, name: str) -> Kind:
    kind = find_kind(api_version, name)
    assert kind is not None
    return kind


_POD: Final = _found("v1", "Pod")
_SIGNING_REQUEST: Final = _found("certificates.k8s.io/v1", "CertificateSigningRequest")
_POD_CERTIFICATE_REQUEST: Final = _found("certificates.k8s.io/v1beta1", "PodCertificateRequest")
_TRUST_BUNDLE: Final = _found("certificates.k8s.io/v1beta1", "ClusterTrustBundle")
_PLAIN: Final = RestStrategy()
_WITH_STATUS: Final = (
    "Node",
    "Service",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ResourceQuota",
    "VolumeAttachment",
    "ResourceClaim",
)
_STRATEGIES: Final[Mapping[str, RestStrategy]] = {
    **dict.fromkeys(_WITH_STATUS, RestStrategy(has_status=True)),
    "Pod": RestStrategy(
        has_status=True,
        metadata_with_status=("labels", "annotations", "finalizers", "managedFields"),
        create=_create_pod,
        update=_update_pod,
    ),
    "CertificateSigningRequest": RestStrategy(
        has_status=True,
        status_parts=("status", "approval"),
        create=_create_signing_request,
        update=_update_signing_request,
    ),
    "PodCertificateRequest": RestStrategy(
        has_status=True, create=pod_certificate_requests.created, update=_update_pod_certificate_request
    ),
    "ClusterTrustBundle": RestStrategy(update=_update_trust_bundle, name_format=_trust_bundle_name),
    "Namespace": RestStrategy(has_status=True, create=_create_namespace),
}
