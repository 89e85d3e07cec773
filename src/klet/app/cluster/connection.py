"""The API server of this node: one set of credentials, four clients with limits of their own."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.config.configuration import KubeletConfiguration
from klet.kube.access import Access
from klet.kube.client import REQUEST_TIMEOUT, KubeClient
from klet.kube.credentials import Credentials
from klet.kube.informer import InformerSettings
from klet.kube.metrics import RestClientMetrics
from klet.kube.throttle import Unlimited, throttle_for
from klet.kube.transport import Transport
from klet.kube.watch import Watcher
from klet.model.tracing import Tracer

REVIEW_TIMEOUT: Final = timedelta(seconds=10)


class ClusterClients(Struct, frozen=True, kw_only=True):
    """The clients of the API server. A flood of one kind of requests does not delay the others."""

    main: KubeClient
    heartbeat: KubeClient
    """Never throttled, and impatient: a heartbeat that comes late is worth nothing."""
    heartbeat_transport: Transport
    """A connection pool of its own: it is closed after a failure, and no watch must be interrupted by that."""
    transport: Transport
    """The connections of everything else."""
    events: KubeClient
    reviews: KubeClient
    """Asks about the users of the kubelet API. Strangers decide how often: each kind of review has its own limits."""
    informers: InformerSettings


@asynccontextmanager
async def connect_cluster(
    access: Access,
    config: KubeletConfiguration,
    *,
    clock: Clock,
    randomness: random.Random,
    tracer: Tracer | None = None,
    metrics: RestClientMetrics | None = None,
) -> AsyncIterator[ClusterClients]:
    """Return the clients for one kubeconfig; no request is sent yet."""
    plugins = metrics.plugins if metrics is not None else None
    credentials = Credentials(login=access.login, clock=clock, plugins=plugins)
    transport = Transport(access=access, credentials=credentials, tracer=tracer, metrics=metrics)
    heartbeats = Transport(access=access, credentials=credentials, tracer=tracer, metrics=metrics)
    throttle = throttle_for(config.kube_api_qps, config.kube_api_burst, clock)
    event_throttle = throttle_for(config.event_record_qps, config.event_burst, clock)
    main = KubeClient(transport=transport, throttle=throttle, timeout=REQUEST_TIMEOUT, clock=clock)
    try:
        yield ClusterClients(
            main=main,
            heartbeat=KubeClient(
                transport=heartbeats, throttle=Unlimited(), timeout=heartbeat_patience(config), clock=clock
            ),
            heartbeat_transport=heartbeats,
            transport=transport,
            events=KubeClient(transport=transport, throttle=event_throttle, timeout=REQUEST_TIMEOUT, clock=clock),
            reviews=KubeClient(transport=transport, throttle=Unlimited(), timeout=REVIEW_TIMEOUT, clock=clock),
            informers=InformerSettings(
                # As upstream: watches are not limited, and neither is the list that begins one, in the stream or apart.
                KubeClient(transport=transport, throttle=Unlimited(), timeout=REQUEST_TIMEOUT, clock=clock),
                Watcher(transport=transport, randomness=randomness),
                clock,
                randomness,
            ),
        )
    finally:
        await transport.close()
        await heartbeats.close()


def heartbeat_patience(config: KubeletConfiguration) -> timedelta:
    """Return how long a heartbeat may take: never so long that the next one would be late."""
    return min(config.node_status_update_frequency, timedelta(seconds=config.node_lease_duration_seconds))
