"""How a pod may log in to registries: with its `imagePullSecrets`, as the node does, then by credential providers.

The API server has put those of the pod's service account into the pod.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from klet.api.config import Secret
from klet.api.pod import Pod
from klet.errors import KletError, level_for
from klet.images.docker_config import BadDockerConfig, RegistryLogin, parse_docker_config_json, parse_dockercfg
from klet.images.keyring import FittingLogins, Keyring
from klet.images.sources import ProviderLogins, SourcedLogin, from_node, from_secret
from klet.model.pods import uid_of

logger = logging.getLogger(__name__)

_FORMATS: Final = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson", parse_docker_config_json),
    "kubernetes.io/dockercfg": (".dockercfg", parse_dockercfg),
}


class SecretReader(Protocol):
    """Gets secrets that a registered pod refers to; a failure is a KletError."""

    async def secret(self, namespace: str, name: str) -> Secret: ...


class NodeLogins(Protocol):
    """Knows how every pod of the node may log in to registries."""

    async def read(self) -> Mapping[str, RegistryLogin]: ...


class BadPullSecret(KletError):
    """A secret whose logins cannot be read."""


class PullSecrets:
    """Logins of pods."""

    def __init__(self, *, secrets: SecretReader, node: NodeLogins, providers: ProviderLogins) -> None:
        self._secrets = secrets
        self._node = node
        self._providers = providers

    async def find(self, pod: Pod, image: str, repository: str) -> FittingLogins:
        """Return those for an image, whose repository is given by its full name; raises BadPullSecret."""
        secrets, missing = await self._read(pod)
        keyrings = (Keyring(map(_sourced_logins, secrets)), Keyring([from_node(await self._node.read())]))
        found = tuple(login for keyring in keyrings for login in keyring.find(repository))
        provided = await self._providers.find(pod, image, repository)
        return FittingLogins(found + provided, missing=tuple(missing))

    async def find_missing(self, pod: Pod) -> Sequence[str]:
        """Return the secrets of a pod that cannot be read; its images are pulled without them."""
        if not pod.spec.image_pull_secrets:
            return ()
        _, missing = await self._read(pod)
        return missing

    async def _read(self, pod: Pod) -> tuple[list[Secret], list[str]]:
        secrets, missing = [], []
        for name in [reference.name for reference in pod.spec.image_pull_secrets if reference.name]:
            try:
                secrets.append(await self._secrets.secret(pod.metadata.namespace, name))
            except KletError as error:
                missing.append(name)
                extra = {"pod": pod.metadata.name, "uid": uid_of(pod), "secret": name, "error": str(error)}
                logger.log(
                    level_for(error, logging.INFO),
                    "Unable to retrieve pull secret, the image pull may not succeed",
                    extra=extra,
                )
        return secrets, missing


def _sourced_logins(secret: Secret) -> Mapping[str, SourcedLogin]:
    metadata = secret.metadata
    return from_secret(
        read_logins(secret), uid=metadata.uid or "", namespace=metadata.namespace or "", name=metadata.name or ""
    )


def read_logins(secret: Secret) -> Mapping[str, RegistryLogin]:
    """Return the logins in a secret; none in one of another type, or without any."""
    key, parse = _FORMATS.get(secret.type, ("", parse_dockercfg))
    data = secret.data.get(key, b"")
    if not data:
        return {}
    try:
        return parse(data)
    except BadDockerConfig as error:
        where = f"{secret.metadata.namespace}/{secret.metadata.name}"
        raise BadPullSecret(f'image pull secret "{where}", key {key}: {error}') from None
