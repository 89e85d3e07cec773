"""Rules for files made from keys and fields: items, downward API files, projected volumes."""

import re
from collections.abc import Mapping
from typing import Final

from klet.api.validation import formats
from klet.api.validation.errors import (
    FieldErrors,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    too_long,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.metadata import ANNOTATIONS_LIMIT, validate_label_selector
from klet.api.validation.selectors import VOLUME_FIELDS, validate_field_selector, validate_resource_selector
from klet.api.volume import (
    ClusterTrustBundleProjection,
    ConfigMapProjection,
    DownwardAPIVolumeFile,
    KeyToPath,
    PodCertificateProjection,
    ProjectedVolumeSource,
    SecretProjection,
    ServiceAccountTokenProjection,
    VolumeProjection,
)

_CONFLICT: Final = "conflicting duplicate paths"
_MIN_TOKEN_SECONDS: Final = 600
_MAX_TOKEN_SECONDS: Final = 2**32
_MIN_CERTIFICATE_SECONDS: Final = 3600
_MAX_CERTIFICATE_SECONDS: Final = 91 * 24 * 3600
_MAX_OWN_CERTIFICATE_SECONDS: Final = 24 * 3600
"""Signers of Kubernetes itself sign for a day at most."""
_KUBERNETES: Final = "kubernetes.io"
_KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_SIGNER_PATH: Final = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?")


def validate_mode(mode: int | None, path: FieldPath) -> FieldErrors:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def validate_items(items: tuple[KeyToPath, ...], path: FieldPath) -> FieldErrors:
    for position, item in enumerate(items):
        yield from _item(item, path.at(position))


def validate_downward_files(files: tuple[DownwardAPIVolumeFile, ...], path: FieldPath) -> FieldErrors:
    """Check the files; errors carry the path of the source: the position of the file is not printed."""
    for file in files:
        yield from _downward_file(file, path)


def validate_projected(source: ProjectedVolumeSource, path: FieldPath) -> FieldErrors:
    yield from validate_mode(source.default_mode, path.child("defaultMode"))
    taken: set[str] = set()
    for position, projection in enumerate(source.sources):
        here = path.child("sources").at(position)
        yield from _projection(projection, taken, path, here)
        given = sum(
            kind is not None
            for kind in (
                projection.secret,
                projection.config_map,
                projection.downward_api,
                projection.service_account_token,
                projection.cluster_trust_bundle,
                projection.pod_certificate,
            )
        )
        if given > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")


def _projection(projection: VolumeProjection, taken: set[str], path: FieldPath, here: FieldPath) -> FieldErrors:
    if projection.secret is not None:
        yield from _keys(projection.secret, taken, path, here.child("secret"))
    if projection.config_map is not None:
        yield from _keys(projection.config_map, taken, path, here.child("configMap"))
    if projection.downward_api is not None:
        for file in projection.downward_api.items:
            yield from _downward_file(file, here.child("downwardAPI"))
            yield from _target(file.path, file.path, taken, path)
    if projection.service_account_token is not None:
        yield from _token(projection.service_account_token, path, here.child("serviceAccountToken"))
    if projection.cluster_trust_bundle is not None:
        yield from _trust_bundle(projection.cluster_trust_bundle, here.child("clusterTrustBundle"))
        yield from _target(projection.cluster_trust_bundle.path, projection.cluster_trust_bundle.path, taken, path)
    if projection.pod_certificate is not None:
        yield from _certificate(projection.pod_certificate, taken, path, here.child("podCertificate"))


def _keys(
    source: SecretProjection | ConfigMapProjection, taken: set[str], path: FieldPath, here: FieldPath
) -> FieldErrors:
    if not source.name:
        yield required(here.child("name"))
    for position, item in enumerate(source.items):
        yield from _item(item, here.child("items").at(position))
        yield from _target(item.path, source.name, taken, path)


def _target(target: str, shown: str, taken: set[str], path: FieldPath) -> FieldErrors:
    if target:
        if target in taken:
            yield invalid(path, shown, _CONFLICT)
        taken.add(target)


def _item(item: KeyToPath, path: FieldPath) -> FieldErrors:
    if not item.key:
        yield required(path.child("key"))
    if not item.path:
        yield required(path.child("path"))
    yield from invalid_each(path.child("path"), item.path, formats.local_unreserved_path(item.path))
    yield from validate_mode(item.mode, path.child("mode"))


def _downward_file(file: DownwardAPIVolumeFile, path: FieldPath) -> FieldErrors:
    if not file.path:
        yield required(path.child("path"))
    yield from invalid_each(path.child("path"), file.path, formats.local_unreserved_path(file.path))
    if file.field_ref is not None:
        yield from validate_field_selector(file.field_ref, VOLUME_FIELDS, path.child("fieldRef"))
        if file.resource_field_ref is not None:
            message = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield invalid(path, "resource", message)
    elif file.resource_field_ref is not None:
        here = path.child("resourceFieldRef")
        yield from validate_resource_selector(file.resource_field_ref, here, in_volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from validate_mode(file.mode, path.child("mode"))


def _token(source: ServiceAccountTokenProjection, path: FieldPath, here: FieldPath) -> FieldErrors:
    seconds = source.expiration_seconds or 0
    if seconds < _MIN_TOKEN_SECONDS:
        yield invalid(here.child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes")
    if seconds > _MAX_TOKEN_SECONDS:
        message = "may not specify a duration larger than 2^32 seconds"
        yield invalid(here.child("expirationSeconds"), seconds, message)
    # The path of the token is reported at the volume source, not at the projection.
    if not source.path:
        yield required(path.child("path"))
    else:
        yield from invalid_each(path.child("path"), source.path, formats.local_unreserved_path(source.path))


def _trust_bundle(source: ClusterTrustBundleProjection, path: FieldPath) -> FieldErrors:
    if source.name is not None and source.signer_name is not None:
        yield invalid(path, source, "only one of name and signerName may be used")
    elif source.name is not None:
        yield from _bundle_name(source.name, path.child("name"))
        if source.label_selector is not None:
            message = "labelSelector must be unset if name is specified"
            yield invalid(path.child("labelSelector"), source.label_selector, message)
    elif source.signer_name is not None:
        if not source.signer_name:
            yield required(path.child("signerName"), "must be a valid signer name")
        yield from _signer_name(source.signer_name, path.child("signerName"))
        yield from validate_label_selector(source.label_selector, path.child("labelSelector"))
    else:
        yield required(path, "either name or signerName must be specified")
    if not source.path:
        yield required(path.child("path"))
    yield from invalid_each(path.child("path"), source.path, formats.local_unreserved_path(source.path))


def _certificate(source: PodCertificateProjection, taken: set[str], path: FieldPath, here: FieldPath) -> FieldErrors:
    yield from _signer_name(source.signer_name, here.child("signerName"))
    yield from _user_annotations(source.user_annotations, here.child("userAnnotations"))
    if source.key_type not in _KEY_TYPES:
        yield not_supported(here.child("keyType"), source.key_type, _KEY_TYPES)
    if source.max_expiration_seconds is not None:
        yield from _expiration(source.max_expiration_seconds, source.signer_name, here.child("maxExpirationSeconds"))
    paths = {
        "credentialBundlePath": source.credential_bundle_path,
        "keyPath": source.key_path,
        "certificateChainPath": source.certificate_chain_path,
    }
    for name, target in paths.items():
        if target:
            yield from invalid_each(here.child(name), target, formats.local_unreserved_path(target))
            yield from _target(target, target, taken, path)
    if not any(paths.values()):
        yield required(here, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")


def _expiration(seconds: int, signer: str, path: FieldPath) -> FieldErrors:
    if seconds < _MIN_CERTIFICATE_SECONDS:
        yield invalid(path, seconds, f"if provided, maxExpirationSeconds must be >= {_MIN_CERTIFICATE_SECONDS}")
    domain = signer.partition("/")[0]
    is_own = domain == _KUBERNETES or domain.endswith(f".{_KUBERNETES}")
    most = _MAX_OWN_CERTIFICATE_SECONDS if is_own else _MAX_CERTIFICATE_SECONDS
    if seconds > most:
        yield invalid(path, seconds, f"if provided, maxExpirationSeconds must be <= {most}")


def _user_annotations(annotations: Mapping[str, str], path: FieldPath) -> FieldErrors:
    """Check the keys, in lower case: each needs a domain prefix. All together have the size limit of annotations."""
    for key in (each.lower() for each in annotations):
        if not key:
            yield required(path)
        elif messages := formats.label_key(key):
            yield from invalid_each(path, key, messages)
        elif "/" not in key:
            yield invalid(path, key, 'must be a domain-prefixed key (such as "acme.io/foo")')
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        yield too_long(path, ANNOTATIONS_LIMIT)


def _bundle_name(name: str, path: FieldPath) -> FieldErrors:
    """Check the name of a bundle; one of a signer is named `<signer with / as :>:<name>`."""
    if not name:
        yield required(path, "must be a valid object name")
    messages = formats.dns_subdomain(name.rpartition(":")[2])
    yield from invalid_each(path, name, (f"not a valid clustertrustbundlename: {message}" for message in messages))


def _signer_name(name: str, path: FieldPath) -> FieldErrors:
    if not name:
        yield required(path)
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        message = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, message)
        return
    yield from invalid_each(path, domain, formats.dns_subdomain(domain))
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    for segment in rest.split("."):
        if not _SIGNER_PATH.fullmatch(segment):
            yield invalid(path, rest, "validating label should be a DNS label")
