"""What the agent keeps for the time without an API server, and the wrappers that keep it (`--klet-offline`)."""

from datetime import timedelta

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.event import Event
from klet.api.pod import Pod
from klet.model.pods import uid_of
from klet.model.roles import EventApi, PodSink, ReferredObjects, TokenClient
from klet.offline.keeper import PodKeeper
from klet.offline.objects import KeptObjects, forget_unused
from klet.offline.outage import Outage
from klet.offline.store import OfflineStore
from klet.offline.tokens import KeptTokens, forget_tokens


class Offline(Struct, frozen=True, kw_only=True):
    """What is kept, and whether it has to do."""

    store: OfflineStore
    outage: Outage
    patience: timedelta
    """How long nothing must have answered for the API server to count as away."""
    node_name: str
    clock: Clock

    def keep_objects(self, inner: ReferredObjects) -> KeptObjects:
        """Return the same config maps and secrets, also without the API server. It is a part, too."""
        store = self.store
        return KeptObjects(
            inner=inner, config_maps=store.config_maps, secrets=store.secrets, is_away=self.outage.is_away
        )

    def keep_tokens(self, inner: TokenClient) -> KeptTokens:
        """Return the same client, whose tokens outlive the agent."""
        return KeptTokens(inner=inner, files=self.store.tokens, is_away=self.outage.is_away, clock=self.clock)

    def keep_pods(self, sink: PodSink) -> PodKeeper:
        """Return a part that takes the pods of the API server in the sink's place, and passes them on."""
        left = self.store.left_pods
        return PodKeeper(
            store=self.store.pods,
            sink=sink,
            node_name=self.node_name,
            on_kept=self._forget_others,
            kept=() if left is None else left.pods,
            clock=self.clock,
        )

    async def _forget_others(self, pods: tuple[Pod, ...]) -> None:
        await forget_unused(pods, self.store.config_maps, self.store.secrets)
        await forget_tokens(map(uid_of, pods), self.store.tokens)


class OfflineAwareEvents:
    """Events are not tried, and so not given up, while the API server is away."""

    def __init__(self, *, inner: EventApi, outage: Outage) -> None:
        self._inner = inner
        self._outage = outage

    async def create(self, event: Event) -> None:
        await self._outage.until_there()
        await self._inner.create(event)

    async def patch_count(self, event: Event) -> None:
        await self._outage.until_there()
        await self._inner.patch_count(event)
