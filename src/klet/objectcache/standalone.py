"""The objects and tokens of a node without an API server: there are none, in upstream's words."""

from klet.aio.broadcast import Broadcast, Subscription
from klet.api.authentication import TokenRequest
from klet.api.config import ConfigMap, Secret, ServiceAccount
from klet.api.pod import Pod
from klet.model.objects import IssuedToken, ObjectRef
from klet.model.pods import PodUID
from klet.objectcache.errors import Standalone, TokenFailed

NO_OBJECTS = "not supported due to running kubelet in standalone mode"
NO_TOKENS = "failed to fetch token: cannot use TokenManager when kubelet is in standalone mode"


class StandaloneObjects:
    """No config maps and no secrets."""

    def register(self, pod: Pod) -> None:
        """Do nothing."""

    def unregister(self, uid: PodUID) -> None:
        """Do nothing."""

    async def config_map(self, namespace: str, name: str) -> ConfigMap:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)

    async def secret(self, namespace: str, name: str) -> Secret:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)

    def changes(self) -> Subscription[ObjectRef]:
        return Broadcast[ObjectRef]().subscribe()


class StandaloneAccounts:
    """No service accounts."""

    async def get(self, namespace: str, name: str) -> ServiceAccount:  # noqa: ARG002 - the role's arguments
        raise Standalone(NO_OBJECTS)


class StandaloneTokens:
    """No tokens."""

    async def get(self, namespace: str, account: str, request: TokenRequest) -> IssuedToken:  # noqa: ARG002 - the role's arguments
        raise TokenFailed(NO_TOKENS)

    def forget_pod(self, uid: PodUID) -> None:
        """Do nothing."""
