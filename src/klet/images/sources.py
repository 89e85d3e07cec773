"""Where a registry login comes from, and with that which pods it speaks for (CredentialSource). Pure.

The names of the fields are those of upstream's records of pulled images, which hold such sources.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from klet.api.pod import Pod
from klet.images.docker_config import RegistryLogin
from klet.model.hidden_fields import HidesFields

_GO_ESCAPES: Final = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"})
"""Go's encoder writes these signs so, and the hash is over what it writes."""


class ImagePullSecret(HidesFields, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The pull secret of a pod. The hash is of the one login, not of the whole secret."""

    HIDDEN = frozenset({"credential_hash"})

    uid: str
    namespace: str
    name: str
    credential_hash: str


class ImagePullServiceAccount(Struct, frozen=True, forbid_unknown_fields=True):
    """The service account of a pod, for which a credential provider gave the login."""

    uid: str
    namespace: str
    name: str


class NodeWide(Struct, frozen=True):
    """The node: its own files, or a credential provider that asks for no service account. Every pod may use these."""


LoginSource: TypeAlias = ImagePullSecret | ImagePullServiceAccount | NodeWide


class SourcedLogin(Struct, frozen=True):
    """A login, and where it comes from."""

    login: RegistryLogin
    source: LoginSource


class ProviderLogins(Protocol):
    """Knows the logins of credential providers. They are tried after those of pull secrets and of the node."""

    async def find(self, pod: Pod, image: str, repository: str) -> tuple[SourcedLogin, ...]:
        """Return those for an image, to be tried in this order.

        `image` is what the pod asks for, `repository` its full name without tag and digest. A provider that fails is
        logged and gives none: it never fails the pull.
        """
        ...


class NoProviderLogins:
    """A node without credential providers."""

    async def find(self, pod: Pod, image: str, repository: str) -> tuple[SourcedLogin, ...]:
        del pod, image, repository
        return ()


def from_secret(
    logins: Mapping[str, RegistryLogin], *, uid: str, namespace: str, name: str
) -> Mapping[str, SourcedLogin]:
    """Return the logins of a pull secret with their source."""
    return {
        location: SourcedLogin(login, ImagePullSecret(uid, namespace, name, credential_hash(login)))
        for location, login in logins.items()
    }


def from_node(logins: Mapping[str, RegistryLogin]) -> Mapping[str, SourcedLogin]:
    """Return the logins of the node with their source."""
    return {location: SourcedLogin(login, NodeWide()) for location, login in logins.items()}


def credential_hash(login: RegistryLogin) -> str:
    """Return upstream's hash of a login: SHA-256 over the JSON that Go writes of it, without empty fields."""
    fields = {"username": login.username, "password": login.password, "email": login.email}
    text = json.dumps({key: value for key, value in fields.items() if value}, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.translate(_GO_ESCAPES).encode("utf-8", "surrogatepass")).hexdigest()
