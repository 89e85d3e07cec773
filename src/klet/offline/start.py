"""The start of an agent whose API server is away: it starts from what it accepted last, as if that had just arrived."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from klet.aio.tasks import first_of
from klet.api.pod import Pod
from klet.kube.node_informers import NodeInformers
from klet.model.causes import CauseRecorder
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import PodCidrUpdater
from klet.offline.keeping import Offline
from klet.offline.snapshot import AcceptedPods

logger = logging.getLogger(__name__)

DECIDER: Final = "offline.start"
CIDR_RETRY: Final = timedelta(seconds=10)


class StartFromKept:
    """Gives the informers what was kept, unless the API server answers first."""

    def __init__(
        self,
        *,
        offline: Offline,
        informers: NodeInformers,
        cidrs: PodCidrUpdater,
        update: Callable[[Pod, datetime], Pod],
        recorder: CauseRecorder,
    ) -> None:
        self._offline = offline
        self._informers = informers
        self._cidrs = cidrs
        self._update = update
        """Bring a kept pod up to date with what the agent reported of it last."""
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def run(self) -> None:
        """Run until it is settled where the pods of this run come from."""
        await first_of(self._until_listed(), self._offline.outage.until_away())
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
            is_news = await self._cidrs.apply(cidrs)  # a part that did not take them gets them again

    async def _until_listed(self) -> None:
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
        now = self._offline.clock.now()
        pods = tuple(self._update(pod, now) for pod in accepted.pods)
        self._record(pods, accepted, since)
        self._informers.pods.restore(pods)

    def _record(self, pods: Sequence[Pod], accepted: AcceptedPods, since: datetime) -> None:
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
