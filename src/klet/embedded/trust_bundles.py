"""Rules of trust bundles: how one of a signer is named, and that it stays that signer's."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from klet.api.validation import formats
from klet.api.validation.errors import FieldError, invalid
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.formats import Messages
from klet.api.validation.metadata import IMMUTABLE, NameFormat


def name_format(obj: Mapping[str, Any]) -> NameFormat:
    """Return the rule for a bundle's name: `<signer with / as :>:<name>`; one without a signer has no colon."""
    return partial(_name_errors, _signer(obj))


def find_update_errors(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    if _signer(new) != _signer(old):
        yield invalid(FieldPath("spec").child("signerName"), _signer(new), IMMUTABLE)


def _name_errors(signer: str, name: str) -> Messages:
    if not signer:
        if ":" in name:
            return ('ClusterTrustBundle without signer name must not have ":" in its name',)
        return formats.dns_subdomain(name)
    prefix = f"{signer.replace('/', ':')}:"
    if not name.startswith(prefix):
        return (f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}",)
    return formats.dns_subdomain(name.removeprefix(prefix))


def _signer(obj: Mapping[str, Any]) -> str:
    signer = (obj.get("spec") or {}).get("signerName") or ""
    return signer if isinstance(signer, str) else ""
