"""The clients of a simulated node: all of them through one connection, and without limits."""

import random

from klet.aio.clock import Clock
from klet.app.cluster.connection import ClusterClients
from klet.kube.client import KubeClient
from klet.kube.informer import InformerSettings
from klet.kube.transport import Transport
from klet.kube.watch import Watcher


def simulated_clients(
    client: KubeClient, watcher: Watcher, transport: Transport, *, clock: Clock, randomness: random.Random
) -> ClusterClients:
    """Return clients that retry watches by this clock."""
    return ClusterClients(
        main=client,
        heartbeat=client,
        heartbeat_transport=transport,
        transport=transport,
        events=client,
        reviews=client,
        informers=InformerSettings(client, watcher, clock, randomness),
    )
