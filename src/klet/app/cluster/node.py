"""Joins the agent with its Node at the API server: registration, status, lease, and the pods' network."""

import platform
from datetime import timedelta

from klet.app.basics import Basics
from klet.app.cluster.connection import ClusterClients, ClusterInformers
from klet.app.settings import AgentSettings
from klet.app.wiring import Agent, Part
from klet.config.command_line import Settings
from klet.host.machine import MachineReader, go_architecture
from klet.host.procfs import ProcReader
from klet.node.board import NodeBoard
from klet.node.bridge_network import BridgeNames, BridgeNetwork
from klet.node.composer import NodeComposer
from klet.node.host_facts import HostFacts
from klet.node.image_list import ImageList
from klet.node.lease import LeaseKeeper, LeaseTerms
from klet.node.observer import NodeInputs, NodeObserver
from klet.node.pod_cidrs import CidrUser, PodCidrs, RuntimeCidrs
from klet.node.registrar import NodeRegistrar
from klet.node.reporter import Pace, StatusReporter
from klet.node.settings import ReportTimes, cut_node_settings
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
    inputs: NodeInputs,
) -> tuple[Part, ...]:
    """What keeps the Node at the API server true."""
    config, clock, randomness = given.config, basics.clock, basics.randomness
    node = cut_node_settings(
        config, given.flags, name=settings.node_name, architecture=go_architecture(platform.machine())
    )
    board = NodeBoard()
    images = ImageList(images=basics.runtime, clock=clock)
    facts = HostFacts(
        root=settings.root, machine=MachineReader(), proc=ProcReader(), threads=basics.threads, clock=clock
    )
    observer = NodeObserver(
        machine=facts,
        health=agent.runtime,
        runtime=basics.runtime,
        images=images,
        inputs=inputs,
        settings=node,
        clock=clock,
    )
    composer = NodeComposer(
        observer=observer,
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
        errors=observer.errors,
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
