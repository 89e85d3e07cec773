"""Joins the agent with its pods at the API server: they come from there, and their statuses and Events go there."""

from msgspec import Struct

from klet.app.cluster.connection import ClusterClients
from klet.app.cluster.offline import build_offline_parts
from klet.app.metrics import register_queues
from klet.app.wiring import Agent
from klet.certs.maker import CertificateMaker
from klet.certs.pod_certificates.board import PodCertificates
from klet.certs.pod_certificates.manager import CertificateApi, PodCertificateManager
from klet.certs.pod_certificates.metrics import register_pod_certificates
from klet.events.event_api import ApiEvents
from klet.events.recorder import EventingRecorder, EventWriter
from klet.kube.node_informers import NodeInformers
from klet.model.causes import CauseRecorder
from klet.model.roles import EventApi, Part, PodCidrUpdater, PodSink, Publisher
from klet.offline.keeping import Offline, OfflineAwareEvents
from klet.pods.mirror_api import ApiMirrors
from klet.pods.mirrors import MirrorKeeper
from klet.sources.api import ApiSource
from klet.status.manager import StatusManager
from klet.status.metrics import register_statuses
from klet.status.pod_api import ApiPods


class PodParts(Struct, frozen=True, kw_only=True):
    """What follows the pods of an API server."""

    others: tuple[Part, ...]
    publishers: tuple[Publisher, ...]
    """Those that send statuses and Events."""


def build_pod_parts(
    agent: Agent,
    clients: ClusterClients,
    informers: NodeInformers,
    *,
    recorder: EventingRecorder,
    sink: PodSink,
    node_name: str,
    cidrs: PodCidrUpdater,
    offline: Offline | None = None,
) -> PodParts:
    """Build the parts that follow the pods of an API server. The informers are parts of their own."""
    clock, randomness = clients.informers.clock, clients.informers.randomness
    event_api: EventApi = ApiEvents(client=clients.events)
    offline_parts: tuple[Part, ...] = ()
    if offline is not None:
        event_api = OfflineAwareEvents(inner=event_api, outage=offline.outage)
        sink = keeper = offline.keep_pods(sink)
        more = build_offline_parts(offline, clients, informers, cidrs=cidrs, statuses=agent.statuses, recorder=recorder)
        offline_parts = (keeper, *more)
    publisher = StatusManager(
        board=agent.statuses,
        pods=agent.pods,
        api=ApiPods(client=clients.main, pods=informers.pods),
        may_run=agent.queries.could_have_running_containers,
        delays=register_statuses(agent.metrics.agent),
        clock=clock,
    )
    mirrors = MirrorKeeper(
        pods=agent.pods,
        api=ApiMirrors(client=clients.main, nodes=informers.node, node_name=node_name),
        is_ending=agent.queries.is_static_terminating,
        clock=clock,
    )
    events = EventWriter(
        findings=recorder,
        pods=agent.pods,
        api=event_api,
        node_name=node_name,
        clock=clock,
        randomness=randomness,
    )
    register_queues(agent.metrics.agent, {"statuses": lambda: publisher.queue_length, "events": lambda: events.waiting})
    source = ApiSource(node=informers.node, pods=informers.pods, sink=sink, recorder=recorder)
    return PodParts(others=(source, mirrors, *offline_parts), publishers=(publisher, events))


def build_pod_certificates(
    board: PodCertificates,
    agent: Agent,
    clients: ClusterClients,
    informers: NodeInformers,
    *,
    recorder: CauseRecorder,
    node_name: str,
) -> tuple[Part, ...]:
    """Build the parts that request certificates for pods."""
    clock = clients.informers.clock
    api = CertificateApi(
        node_name=node_name, client=clients.main, requests=informers.certificate_requests, nodes=informers.node
    )
    manager = PodCertificateManager(
        api=api,
        pods=agent.pods,
        keys=CertificateMaker(clock=clock),
        board=board,
        recorder=recorder,
        clock=clock,
        randomness=clients.informers.randomness,
    )
    register_pod_certificates(agent.metrics.agent, board, agent.pods.all, clock)
    return informers.certificate_requests, manager
