"""Probes that open a TCP connection."""

import asyncio

from klet.api.handlers import TCPSocketAction
from klet.host.http_client import describe_dial
from klet.model.http_get import PortError, join_host_port, resolve_port
from klet.probes.handler import ProbeAnswer, ProbeOutcome, ProbeTarget


async def probe_tcp(action: TCPSocketAction, target: ProbeTarget) -> ProbeOutcome:
    """Open a connection: that is success; nothing is sent."""
    try:
        port = resolve_port(action.port, target.container)
    except PortError as error:
        return ProbeOutcome(ProbeAnswer.UNKNOWN, error=str(error))
    host = action.host or target.pod_ip
    try:
        async with asyncio.timeout(target.timeout.total_seconds()):
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, port)
    except TimeoutError:
        return ProbeOutcome(ProbeAnswer.FAILURE, f"dial tcp {join_host_port(host, port)}: i/o timeout")
    except (OSError, UnicodeError) as error:
        return ProbeOutcome(ProbeAnswer.FAILURE, describe_dial(host, port, error))
    transport.abort()
    return ProbeOutcome(ProbeAnswer.SUCCESS)
