"""Joins the agent with its Node at the API server: registration, status, lease, and the pods' network."""

from datetime import timedelta

from klet.app.basics import Basics
from klet.app.cluster.connection import ClusterClients, ClusterInformers
from klet.app.settings import AgentSettings
from klet.app.wiring import Agent, Part
from klet.config.command_line import Settings
from klet.host.addresses import AddressReader
from klet.host.disk import FilesystemCapacity
from klet.node.board import NodeBoard
from klet.node.bridge_network import BridgeNames, BridgeNetwork
from klet.node.composer import NodeComposer
from klet.node.image_list import ImageList
from klet.node.lease import LeaseKeeper, LeaseTerms
from klet.node.pod_cidrs import CidrUser, PodCidrs, RuntimeCidrs
from klet.node.registrar import NodeRegistrar
from klet.node.reporter import Pace, StatusReporter
from klet.node.settings import ReportTimes, cut_node_settings
from klet.node.status_inputs import PATIENCE, PartReports, StatusInputsReader
from klet.node.status_sync import Heartbeats, StatusSync


def build_node_parts(
    given: Settings,
    settings: AgentSettings,
    basics: Basics,
    *,
    agent: Agent,
    clients: ClusterClients,
    informers: ClusterInformers,
    cidrs: PodCidrs,
) -> tuple[Part, ...]:
    """What keeps the Node at the API server true."""
    config, clock, randomness = given.config, basics.clock, basics.randomness
    node = cut_node_settings(
        config, given.flags, name=settings.node_name, architecture=basics.machine.info().architecture
    )
    board = NodeBoard()
    images = ImageList(images=basics.runtime, clock=clock)
    inputs = StatusInputsReader(
        machine=basics.machine,
        addresses=AddressReader(threads=basics.threads, patience=PATIENCE, clock=clock),
        health=agent.runtime,
        runtime=basics.runtime,
        images=images,
        parts=PartReports(
            storage=FilesystemCapacity(path=settings.root, threads=basics.threads).read,
            volumes_in_use=agent.volumes.volumes_in_use,
        ),
        settings=node,
        clock=clock,
    )
    composer = NodeComposer(
        inputs=inputs,
        cidrs=cidrs,
        reported_in_use=agent.volumes.mark_reported_in_use,
        settings=node,
    )
    registrar = NodeRegistrar(
        api=clients.main,
        initial=composer,
        reset_devices=lambda: False,
        board=board,
        recorder=basics.recorder,
        clock=clock,
    )
    times = ReportTimes(update=config.node_status_update_frequency, report=config.node_status_report_frequency)
    reporter = StatusReporter(
        name=settings.node_name,
        registrar=registrar if config.register_node else None,
        sync=StatusSync(
            heartbeats=Heartbeats(clients.heartbeat, clients.heartbeat_transport.reconnect),
            seen=informers.node,
            composer=composer,
            board=board,
            recorder=basics.recorder,
            clock=clock,
            times=times,
            randomness=randomness,
        ),
        nodes=informers.node,
        wakes=(agent.runtime.changes, agent.volumes.in_use_changes),
        known=board,
        errors=inputs.errors,
        pace=Pace(times=times, clock=clock, randomness=randomness),
    )
    lease = LeaseKeeper(
        api=clients.heartbeat,
        terms=LeaseTerms(settings.node_name, timedelta(seconds=config.node_lease_duration_seconds)),
        until_node=board.until_known,
        on_failure=clients.heartbeat_transport.reconnect,
        clock=clock,
        randomness=randomness,
    )
    return (images, reporter, lease)


def build_pod_cidrs(given: Settings, basics: Basics) -> PodCidrs:
    """Who is told of the pod CIDRs. The runtime last: it looks for a network when it is told."""
    users: list[CidrUser] = [RuntimeCidrs(runtime=basics.runtime)]
    if given.klet.bridge_network:
        users.insert(0, BridgeNetwork(runtime=basics.runtime, names=BridgeNames(), threads=basics.threads))
    return PodCidrs(users=users)
