"""Joins the agent with what it keeps for the time without an API server (`--klet-offline`)."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.certificates import ClusterTrustBundle
from klet.api.event import Event
from klet.api.pod import Pod
from klet.api.times import Time
from klet.app.basics import Basics
from klet.app.cluster.connection import ClusterClients, ClusterInformers
from klet.app.settings import AgentSettings
from klet.app.wiring import Part
from klet.config.klet import KletConfiguration
from klet.events.recorder import EventApi
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.objectcache.trust_anchors import choose_bundles
from klet.offline.keeper import PodKeeper, PodSink
from klet.offline.objects import KeptObjects, Objects, forget_unused
from klet.offline.outage import Outage, OutageWatch
from klet.offline.plan import choose_pods, choose_services
from klet.offline.snapshot import AcceptedPods, Surroundings
from klet.offline.store import OfflineStore, open_store
from klet.offline.surroundings import SurroundingsKeeper
from klet.offline.tokens import KeptTokens, TokenClient, forget_tokens
from klet.status.api_status import merge_status
from klet.status.board import StatusBoard

logger = logging.getLogger(__name__)

DIRECTORY: Final = "klet-offline"
READY: Final = "/readyz"
DECIDER: Final = "app.cluster.offline"
CIDR_RETRY: Final = timedelta(seconds=10)


class PodCidrUser(Protocol):
    """Who hands the node's pod CIDRs to the runtime; True while they are news to it."""

    async def apply(self, cidrs: tuple[str, ...]) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """What is kept, and whether it has to do."""

    store: OfflineStore
    outage: Outage
    patience: timedelta
    """How long nothing must have answered for the API server to count as away."""
    node_name: str
    clock: Clock

    def keep_objects(self, inner: Objects) -> KeptObjects:
        """The same config maps and secrets, also without the API server. It is a part, too."""
        store = self.store
        return KeptObjects(
            inner=inner, config_maps=store.config_maps, secrets=store.secrets, is_away=self.outage.is_away
        )

    def keep_tokens(self, inner: TokenClient) -> KeptTokens:
        """The same client, whose tokens outlive the agent."""
        return KeptTokens(inner=inner, files=self.store.tokens, is_away=self.outage.is_away, clock=self.clock)

    def keep_pods(self, sink: PodSink) -> PodKeeper:
        """What the source of the API server's pods tells instead of the agent. It is a part, too."""
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


async def open_offline(klet: KletConfiguration, settings: AgentSettings, basics: Basics) -> Offline:
    """Read what the previous run of the agent has left."""
    # cryptography takes memory that a node without offline keeping can spare.
    from klet.offline.sealing import load_sealer  # noqa: PLC0415 - see above

    node_name, clock = settings.node_name, basics.clock
    store = await open_store(
        settings.root / DIRECTORY,
        node_name=node_name,
        make_sealer=load_sealer,
        threads=basics.threads,
        clock=clock,
    )
    return Offline(store=store, outage=Outage(), patience=klet.offline_after, node_name=node_name, clock=clock)


def build_offline_parts(
    offline: Offline,
    clients: ClusterClients,
    informers: ClusterInformers,
    *,
    cidrs: PodCidrUser,
    statuses: StatusBoard,
    recorder: CauseRecorder,
) -> tuple[Part, ...]:
    """What notices that the API server is away, keeps the surroundings of pods, and starts from them."""
    watch = OutageWatch(
        outage=offline.outage,
        reach=clients.main.reach,
        ask=lambda: clients.main.read(READY),
        patience=offline.patience,
        recorder=recorder,
        clock=offline.clock,
    )
    keeper = SurroundingsKeeper(
        store=offline.store.surroundings,
        followed=FollowedSurroundings(
            informers=informers,
            node_name=offline.node_name,
            left=offline.store.left_surroundings,
            clock=offline.clock,
        ),
        kept=offline.store.left_surroundings,
        clock=offline.clock,
    )
    start = RememberedStart(offline=offline, informers=informers, cidrs=cidrs, statuses=statuses, recorder=recorder)
    return (watch, keeper, start)


class FollowedSurroundings:
    """What pods of this node need besides themselves."""

    def __init__(self, *, informers: ClusterInformers, node_name: str, left: Surroundings | None, clock: Clock) -> None:
        self._informers = informers
        self._node_name = node_name
        self._left_bundles = () if left is None else left.trust_bundles
        self._clock = clock

    async def until_known(self) -> None:
        await self._informers.node.until_synced()
        await self._informers.services.until_synced()
        await self._informers.runtime_classes.until_synced()
        await self._informers.pods.until_synced()

    def current(self) -> Surroundings:
        informers = self._informers
        pods = choose_pods(informers.pods.all())
        # Before a pod of this life has asked for one, those of the last life count.
        bundles = informers.trust_bundles.all() if informers.trust_bundles.is_synced else self._left_bundles
        return Surroundings(
            node_name=self._node_name,
            at=self._clock.now(),
            nodes=informers.node.all(),
            services=choose_services(informers.services.all(), pods),
            runtime_classes=informers.runtime_classes.all(),
            trust_bundles=choose_shown_bundles(bundles, pods),
        )


class RememberedStart:
    """An agent whose API server is away from the start goes by what it accepted last, as if it had just been told."""

    def __init__(
        self,
        *,
        offline: Offline,
        informers: ClusterInformers,
        cidrs: PodCidrUser,
        statuses: StatusBoard,
        recorder: CauseRecorder,
    ) -> None:
        self._offline = offline
        self._informers = informers
        self._cidrs = cidrs
        self._statuses = statuses
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def run(self) -> None:
        """Ends when it is settled where the pods of this life come from."""
        await first_of(self._until_told(), self._offline.outage.until_away())
        since = self._offline.outage.since
        if since is None or self._informers.pods.is_synced:
            return
        around = self._offline.store.left_surroundings
        cidrs = tuple(cidr for node in around.nodes for cidr in node.spec.pod_cidrs) if around is not None else ()
        # Before the pods: a runtime without a network makes no sandboxes.
        is_news = await self._cidrs.apply(cidrs)
        if not self._informers.pods.is_synced:
            self._restore(since)
        while is_news and self._offline.outage.is_away():
            await self._offline.clock.sleep(CIDR_RETRY)
            is_news = await self._cidrs.apply(cidrs)  # who did not take them is told again

    async def _until_told(self) -> None:
        await self._informers.node.until_synced()
        await self._informers.pods.until_synced()

    def _restore(self, since: datetime) -> None:
        around, accepted = self._offline.store.left_surroundings, self._offline.store.left_pods
        if around is not None:
            self._informers.node.restore(around.nodes)
            self._informers.services.restore(around.services)
            self._informers.runtime_classes.restore(around.runtime_classes)
            self._informers.trust_bundles.restore(around.trust_bundles)
        if accepted is None or around is None:
            logger.warning("The API server is away, and no pods are remembered", extra={"since": since.isoformat()})
            return
        now = Time.of(self._offline.clock.now())
        pods = tuple(restored_pod(pod, self._statuses, now=now) for pod in accepted.pods)
        self._tell(pods, accepted, since)
        self._informers.pods.restore(pods)

    def _tell(self, pods: Sequence[Pod], accepted: AcceptedPods, since: datetime) -> None:
        message = (
            f"API server away since {since:%Y-%m-%dT%H:%M:%SZ}, "
            f"started from what was accepted at {accepted.at:%Y-%m-%dT%H:%M:%SZ}"
        )
        next_step = "compare with the API server when it is back"
        logger.warning("The pods come from memory", extra={"since": since.isoformat(), "count": len(pods)})
        decision = Reason.STARTED_FROM_MEMORY
        cause = self._decisions.for_node().record(
            decision, message, measurements={"pods": len(pods)}, since=since, next_step=next_step
        )
        for pod in pods:
            self._decisions.for_pod(pod).record(decision, message, since=since, next_step=next_step, parent=cause)


def choose_shown_bundles(bundles: Sequence[ClusterTrustBundle], pods: Iterable[Pod]) -> tuple[ClusterTrustBundle, ...]:
    """The trust bundles that volumes of these pods show."""
    chosen: set[str] = set()
    for source in (
        projection.cluster_trust_bundle
        for pod in pods
        for volume in pod.spec.volumes
        if volume.projected is not None
        for projection in volume.projected.sources
    ):
        if source is None:
            continue
        if source.name is not None:
            chosen.add(source.name)
        elif source.signer_name is not None:
            found = choose_bundles(bundles, signer=source.signer_name, selector=source.label_selector)
            chosen |= {each.metadata.name for each in found}
    return tuple(each for each in bundles if each.metadata.name in chosen)


def restored_pod(pod: Pod, statuses: StatusBoard, *, now: Time) -> Pod:
    """A pod as the API server would show it, had it heard the agent's last words: one that is over stays over."""
    uid = pod.metadata.uid
    reported = statuses.get(uid) if isinstance(uid, PodUID) else None
    if reported is None:
        return pod
    return replace(pod, status=merge_status(pod.status, reported, may_run=False, now=now))


class PatientEvents:
    """Events are not tried, and so not given up, while the API server is away."""

    def __init__(self, *, inner: EventApi, outage: Outage) -> None:
        self._inner = inner
        self._outage = outage

    async def create(self, event: Event) -> Event:
        await self._outage.until_there()
        return await self._inner.create(event)

    async def count_up(self, event: Event) -> Event:
        await self._outage.until_there()
        return await self._inner.count_up(event)
