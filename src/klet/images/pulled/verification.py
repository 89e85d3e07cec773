"""Whether a pod may use an image that is on the node without pulling it, and what a record learns. Pure.

Upstream's MustAttemptImagePull and its image pull policy enforcers.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.config.image_policy import ALLOWLISTED, ALWAYS_VERIFY, NEVER_VERIFY
from klet.images.pulled.format import ImagePullCredentials, ImagePulledRecord
from klet.images.sources import ImagePullSecret, ImagePullServiceAccount, LoginSource, NodeWide

MOST_LEARNED: Final = 100
"""With so many secrets in a record, it learns no more of them from pods that use the image without a pull."""
_WILDCARD: Final = "/*"


class Check(StrEnum):
    """The outcome of a check, by the words of upstream's metric."""

    POLICY_ALLOWED = "credentialPolicyAllowed"
    RECORD_FOUND = "credentialRecordFound"
    MUST_AUTHENTICATE = "mustAuthenticate"
    ERROR = "error"

    @property
    def must_pull(self) -> bool:
        return self in {Check.MUST_AUTHENTICATE, Check.ERROR}


class VerificationRules(Struct, frozen=True):
    """The policy of the node."""

    policy: str
    """`imagePullCredentialsVerificationPolicy`."""
    names: frozenset[str] = frozenset()
    """Images that every pod may use if they are there, for the policy with a list of them."""
    beginnings: tuple[str, ...] = ()


class CredentialCheck(Struct, frozen=True):
    """Whether the credentials of a pod are among those of a record, and what the record learns of them."""

    outcome: Check
    learned: ImagePullSecret | None = None


def build_rules(policy: str, allowlist: Iterable[str]) -> VerificationRules:
    """Return the rules that the configuration asks for."""
    patterns = tuple(allowlist)
    return VerificationRules(
        policy=policy,
        names=frozenset(pattern for pattern in patterns if not pattern.endswith(_WILDCARD)),
        beginnings=tuple(pattern.removesuffix("*") for pattern in patterns if pattern.endswith(_WILDCARD)),
    )


def needs_verification(rules: VerificationRules, image: str, *, is_pulled_here: bool) -> bool:
    """Return whether a pod must show credentials for an image that is there. The image is as the pod names it."""
    match rules.policy:
        case policy if policy == NEVER_VERIFY:
            return False
        case policy if policy == ALLOWLISTED:
            return image not in rules.names and not image.startswith(rules.beginnings)
        case policy if policy == ALWAYS_VERIFY:
            return True
        case _:
            return is_pulled_here


def check_record(
    rules: VerificationRules, image: str, repository: str, record: ImagePulledRecord | None, *, is_pulled_here: bool
) -> Check | ImagePullCredentials:
    """Return the outcome, or the recorded credentials if it depends on those of the pod."""
    if not needs_verification(rules, image, is_pulled_here=is_pulled_here):
        return Check.POLICY_ALLOWED
    known = record.credential_mapping.get(repository) if record is not None else None
    if known is None:
        return Check.MUST_AUTHENTICATE
    if known.node_pods_accessible:
        return Check.RECORD_FOUND
    if not known.kubernetes_secrets and not known.kubernetes_service_accounts:
        return Check.MUST_AUTHENTICATE
    return known


def check_credentials(known: ImagePullCredentials, offered: Sequence[LoginSource]) -> CredentialCheck:
    """Compare the credentials of a pod with the recorded ones."""
    may_learn = len(known.kubernetes_secrets) < MOST_LEARNED
    for secret in offered:
        if not isinstance(secret, ImagePullSecret):
            continue
        for recorded in known.kubernetes_secrets:
            has_hash = bool(recorded.credential_hash) and recorded.credential_hash == secret.credential_hash
            is_same = _place(recorded) == _place(secret)
            if has_hash and is_same:
                return CredentialCheck(Check.RECORD_FOUND)
            if has_hash:
                return CredentialCheck(Check.RECORD_FOUND, learned=secret if may_learn else None)
            # A secret that was changed since: upstream trusts it while it can note that.
            if is_same and may_learn:
                return CredentialCheck(Check.RECORD_FOUND, learned=secret)
    accounts = set(known.kubernetes_service_accounts)
    if any(isinstance(source, ImagePullServiceAccount) and source in accounts for source in offered):
        return CredentialCheck(Check.RECORD_FOUND)
    return CredentialCheck(Check.MUST_AUTHENTICATE)


def credentials_of(source: LoginSource | None) -> ImagePullCredentials:
    """Return what a record says of a pull that succeeded with a login from there, or without any."""
    match source:
        case None | NodeWide():
            return ImagePullCredentials(node_pods_accessible=True)
        case ImagePullSecret():
            return ImagePullCredentials(kubernetes_secrets=(source,))
        case ImagePullServiceAccount():
            return ImagePullCredentials(kubernetes_service_accounts=(source,))


def merge_credentials(known: ImagePullCredentials, new: ImagePullCredentials) -> ImagePullCredentials:
    """Return both. What every pod may use stays so; a secret with a new hash replaces itself."""
    if known.node_pods_accessible:
        return known
    if new.node_pods_accessible:
        return ImagePullCredentials(node_pods_accessible=True)
    secrets = {_place(each): each for each in (*known.kubernetes_secrets, *new.kubernetes_secrets)}
    accounts = {*known.kubernetes_service_accounts, *new.kubernetes_service_accounts}
    return ImagePullCredentials(
        kubernetes_secrets=tuple(sorted(secrets.values(), key=_order)),
        kubernetes_service_accounts=tuple(sorted(accounts, key=_order)),
    )


def merge_record(record: ImagePulledRecord, repository: str, new: ImagePullCredentials) -> ImagePulledRecord:
    """Return the record with what it learns about a repository; the same record if that is nothing."""
    known = record.credential_mapping.get(repository)
    merged = new if known is None else merge_credentials(known, new)
    if merged == known:
        return record
    return replace(record, credential_mapping={**record.credential_mapping, repository: merged})


def _place(source: ImagePullSecret | ImagePullServiceAccount) -> tuple[str, str, str]:
    return source.uid, source.namespace, source.name


def _order(source: ImagePullSecret | ImagePullServiceAccount) -> tuple[str, str, str]:
    return source.namespace, source.name, source.uid
