"""The service account for which a credential provider is asked: what it learns of it, what is kept apart. Pure."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec
from klet.api.config import ServiceAccount
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.config.credential_provider import TOKEN_CACHE, ServiceAccountTokenAttributes
from klet.model.hidden_fields import HidesFields


class PodAccount(HidesFields, frozen=True, kw_only=True):
    """The service account of a pod, with a token that is bound to the pod."""

    HIDDEN = frozenset({"token"})

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]
    token: str


class AccountKey(NamedTuple):
    """Answers for one key are good for no other."""

    namespace: str
    name: str
    uid: str
    annotations: tuple[tuple[str, str], ...]
    token_hash: str
    """Empty if an answer is good for every token of the account."""


def choose_annotations(account: ServiceAccount, attributes: ServiceAccountTokenAttributes) -> Mapping[str, str] | None:
    """Return the annotations that a provider gets; None if one that it requires is missing."""
    given = account.metadata.annotations
    required = attributes.required_service_account_annotation_keys
    if any(key not in given for key in required):
        return None
    wanted = (*required, *attributes.optional_service_account_annotation_keys)
    return {key: given[key] for key in wanted if key in given}


def account_key(account: PodAccount | None, attributes: ServiceAccountTokenAttributes | None) -> AccountKey | None:
    """Return what separates the answers of one account from those of others."""
    if account is None or attributes is None:
        return None
    by_token = attributes.cache_type == TOKEN_CACHE
    return AccountKey(
        namespace=account.namespace,
        name=account.name,
        uid=account.uid,
        annotations=tuple(sorted(account.annotations.items())),
        token_hash=hashlib.sha256(account.token.encode()).hexdigest() if by_token else "",
    )


def account_token_request(pod: Pod, account: ServiceAccount, attributes: ServiceAccountTokenAttributes) -> TokenRequest:
    """Return the request for a token of this very account that is bound to the pod, with the server's own lifetime."""
    meta = pod.metadata
    bound = BoundObjectReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid)
    return TokenRequest(
        metadata=ObjectMeta(uid=account.metadata.uid),
        spec=TokenRequestSpec(audiences=(attributes.service_account_token_audience,), bound_object_ref=bound),
    )
