"""What a node follows at its API server: one watch for each kind, however many parts read it."""

from msgspec import Struct

from klet.api.certificates import ClusterTrustBundle, PodCertificateRequest
from klet.api.node import Node, RuntimeClass
from klet.api.pod import Pod
from klet.api.service import Service
from klet.api.storage import CSIDriver
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope


class NodeInformers(Struct, frozen=True, kw_only=True):
    """What the node follows."""

    node: Informer[Node]
    pods: Informer[Pod]
    services: Informer[Service]
    runtime_classes: Informer[RuntimeClass]
    csi_drivers: Informer[CSIDriver]
    trust_bundles: Informer[ClusterTrustBundle]
    """Only followed once a pod asks for one."""
    certificate_requests: Informer[PodCertificateRequest]
    """Those of the node's pods; only followed if pods can have certificates."""

    @property
    def followed(
        self,
    ) -> tuple[Informer[Node], Informer[Pod], Informer[Service], Informer[RuntimeClass], Informer[CSIDriver]]:
        """Those that are followed from the start."""
        return self.node, self.pods, self.services, self.runtime_classes, self.csi_drivers


def build_informers(settings: InformerSettings, node_name: str) -> NodeInformers:
    """Return the informers of a node of that name; each is a part of its own."""
    own = (("fieldSelector", f"metadata.name={node_name}"),)
    bound = (("fieldSelector", f"spec.nodeName={node_name}"),)
    # Headless services have no address for the environment of containers.
    with_address = (("fieldSelector", "spec.clusterIP!=None"),)
    return NodeInformers(
        node=Informer(struct=Node, scope=WatchScope(selectors=own), settings=settings),
        pods=Informer(struct=Pod, scope=WatchScope(selectors=bound), settings=settings),
        services=Informer(struct=Service, scope=WatchScope(selectors=with_address), settings=settings),
        runtime_classes=Informer(struct=RuntimeClass, scope=WatchScope(), settings=settings),
        csi_drivers=Informer(struct=CSIDriver, scope=WatchScope(), settings=settings),
        trust_bundles=Informer(struct=ClusterTrustBundle, scope=WatchScope(), settings=settings),
        certificate_requests=Informer(
            struct=PodCertificateRequest, scope=WatchScope(selectors=bound), settings=settings
        ),
    )
