"""Cuts the settings of the node's certificates, for the parts that get and renew them."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from klet.api.node import NodeAddress
from klet.app.cluster.connection import ClusterClients
from klet.app.ports import BasePorts
from klet.app.settings import AgentSettings
from klet.certs.followers import PairUser
from klet.certs.identity import (
    CertificateTools,
    Identity,
    IdentitySettings,
    ServingRequestSettings,
    build_identity_watch,
    open_identity,
    open_serving,
)
from klet.certs.maker import CertificateMaker
from klet.config.command_line import Settings
from klet.config.configuration import KubeletConfiguration
from klet.kube.node_informers import NodeInformers
from klet.model.roles import Part

DNS_ONLY: Final = "AllowDNSOnlyNodeCSR"


def open_node_identity(
    given: Settings, settings: AgentSettings, base: BasePorts
) -> AbstractAsyncContextManager[Identity]:
    """Return the credentials of the node; obtain them first if it has none and may request some."""
    bootstrap = given.flags.bootstrap_kubeconfig
    wanted = IdentitySettings(
        node_name=settings.node_name,
        kubeconfig=Path(given.flags.kubeconfig),
        bootstrap_kubeconfig=Path(bootstrap) if bootstrap else None,
        directory=Path(given.flags.cert_dir),
        rotates=given.config.rotate_certificates,
    )
    return open_identity(wanted, _tools(base))


def build_identity_parts(identity: Identity, clients: ClusterClients, base: BasePorts) -> tuple[Part, ...]:
    """Return the parts that renew the credentials and reopen every connection with new ones."""
    transports = (clients.transport, clients.heartbeat_transport)
    return (*identity.parts, *build_identity_watch(identity, transports, _tools(base)))


async def open_requested_serving(
    given: Settings,
    node_name: str,
    base: BasePorts,
    *,
    clients: ClusterClients,
    informers: NodeInformers,
    user: PairUser,
) -> tuple[Part, ...]:
    """Return the part that gets the kubelet API its certificate from the cluster (serverTLSBootstrap)."""

    def addresses() -> tuple[NodeAddress, ...]:
        node = informers.node.get(node_name)
        return node.status.addresses if node is not None else ()

    wanted = ServingRequestSettings(
        node_name=node_name,
        directory=Path(given.flags.cert_dir),
        configured=_configured_pair(given.config),
        allow_dns_only=given.gates.enabled(DNS_ONLY),
    )
    return await open_serving(wanted, addresses=addresses, api=clients.informers, user=user, tools=_tools(base))


def _tools(base: BasePorts) -> CertificateTools:
    return CertificateTools(
        registry=base.metrics.agent,
        maker=CertificateMaker(clock=base.clock),
        threads=base.threads,
        clock=base.clock,
        randomness=base.randomness,
        recorder=base.recorder,
    )


def _configured_pair(config: KubeletConfiguration) -> tuple[Path, Path] | None:
    if not (config.tls_cert_file and config.tls_private_key_file):
        return None
    return Path(config.tls_cert_file), Path(config.tls_private_key_file)
