"""Joins the agent with what it keeps for the time without an API server (`--klet-offline`)."""

from datetime import datetime
from typing import Final

from klet.api.pod import Pod
from klet.api.times import Time
from klet.app.cluster.connection import ClusterClients
from klet.app.ports import BasePorts
from klet.app.settings import AgentSettings
from klet.config.klet import KletConfiguration
from klet.kube.node_informers import NodeInformers
from klet.model.causes import CauseRecorder
from klet.model.pods import uid_of
from klet.model.roles import Part, PodCidrUpdater
from klet.offline.keeping import Offline
from klet.offline.kept_cluster import ClusterKeeper, FollowedCluster
from klet.offline.outage import Outage, OutageWatch
from klet.offline.start import StartFromKept
from klet.offline.store import open_store
from klet.status.api_status import restore_status
from klet.status.board import StatusBoard

DIRECTORY: Final = "klet-offline"
READY: Final = "/readyz"


async def open_offline(klet: KletConfiguration, settings: AgentSettings, base: BasePorts) -> Offline:
    """Read what the previous run of the agent has left."""
    # cryptography takes memory that a node without offline keeping can spare.
    from klet.offline.sealing import load_sealer  # noqa: PLC0415 - see above

    node_name, clock = settings.node_name, base.clock
    store = await open_store(
        settings.root / DIRECTORY,
        node_name=node_name,
        make_sealer=load_sealer,
        threads=base.threads,
        clock=clock,
        recorder=base.recorder,
    )
    return Offline(store=store, outage=Outage(), patience=klet.offline_after, node_name=node_name, clock=clock)


def build_offline_parts(
    offline: Offline,
    clients: ClusterClients,
    informers: NodeInformers,
    *,
    cidrs: PodCidrUpdater,
    statuses: StatusBoard,
    recorder: CauseRecorder,
) -> tuple[Part, ...]:
    """Build the parts that notice an outage of the API server, keep what pods need, and start from it."""
    left = offline.store.left_surroundings
    watch = OutageWatch(
        outage=offline.outage,
        reach=clients.main.reach,
        ask=lambda: clients.main.read(READY),
        patience=offline.patience,
        recorder=recorder,
        clock=offline.clock,
    )
    keeper = ClusterKeeper(
        store=offline.store.surroundings,
        followed=FollowedCluster(informers=informers, node_name=offline.node_name, kept=left, clock=offline.clock),
        kept=left,
        clock=offline.clock,
    )

    def update(pod: Pod, now: datetime) -> Pod:
        return restore_status(pod, statuses.get(uid_of(pod)), now=Time.of(now))

    start = StartFromKept(offline=offline, informers=informers, cidrs=cidrs, update=update, recorder=recorder)
    return (watch, keeper, start)
