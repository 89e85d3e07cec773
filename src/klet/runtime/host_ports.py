"""Notes that a process of the host holds a port that a pod's network maps.

The mapping leads around who listens, so the pod gets what comes to the port and the process does not. Upstream takes no
notice, and neither is it refused here; but it is recorded, to explain where connections go.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from klet.api.pod import Pod
from klet.host.listening import HeldPort, HostPort
from klet.model.causes import Finding
from klet.model.pods import subject_of
from klet.model.reasons import Reason
from klet.wire import cri_v1_pb2 as cri

DECIDER: Final = "runtime.host_ports"


class PortHolders(Protocol):
    """Knows the sockets of the host."""

    async def holders(self, ports: Sequence[HostPort]) -> tuple[HeldPort, ...]:
        """Return those of the ports that a process holds."""
        ...


class FreePorts:
    """A host on which no port is held."""

    async def holders(self, ports: Sequence[HostPort]) -> tuple[HeldPort, ...]:  # noqa: ARG002 - the protocol's
        return ()


def mapped_ports(pod: Pod, config: cri.PodSandboxConfig) -> tuple[HostPort, ...]:
    """Return the host ports that lead to the pod; none for a pod on the host's network."""
    if pod.spec.host_network:
        return ()
    return tuple(
        HostPort(mapping.host_port, cri.Protocol.Name(mapping.protocol), mapping.host_ip)
        for mapping in config.port_mappings
        if mapping.host_port
    )


def find_held_port(pod: Pod, held: HeldPort) -> Finding:
    port = held.port
    where = f"{port.address}:{port.number}" if port.address else str(port.number)
    return Finding(
        subject=subject_of(pod),
        decider=DECIDER,
        decision=Reason.HOST_PORT_HELD,
        message=f"host port {where}/{port.protocol} is held by {held.holder} of the host too; the pod's port mapping "
        "leads connections to the pod, and that process gets none from outside",
        measurements={"hostPort": port.number, "protocol": port.protocol, "heldBy": held.holder},
    )
