"""What can go wrong between a pod and the objects it refers to.

ObjectCacheError
├── NotRegistered    no pod is registered that needs the object
├── NotSynced        the API server has not shown it yet
├── TokenFailed      no token could be obtained
├── NoTrustAnchors   the root certificates for a volume cannot be obtained
├── UnusableSecret   a secret with content that cannot be passed on
├── Standalone       what is asked for is on an API server, and there is none
└── UnknownStrategy  a change detection strategy that does not exist

An object that does not exist is `model.objects.ObjectMissing`; other refusals are those of `kube`.
"""

from klet.errors import KletError


class ObjectCacheError(KletError):
    """Base of the errors of the object caches."""


class NotRegistered(ObjectCacheError):
    """No pod is registered that needs the object."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f'object "{namespace}"/"{name}" not registered')


class NotSynced(ObjectCacheError):
    """The API server has not shown the object yet."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"failed to sync {kind} cache: timed out waiting for the condition")


class TokenFailed(ObjectCacheError):
    """No token could be obtained."""


class Standalone(ObjectCacheError):
    """There is no API server."""


class UnusableSecret(ObjectCacheError):
    """A secret with content that cannot be passed on."""


class NoTrustAnchors(ObjectCacheError):
    """Root certificates that cannot be read."""


class UnknownStrategy(ObjectCacheError):
    """A strategy that does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown configmap and secret manager mode: {name}")
