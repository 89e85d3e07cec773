"""The ports of containers on a simulated machine: no devices, volumes by name."""

import random

from klet.app.ports import ContainerPorts, NodeObjects
from klet.cri.port import RuntimeService
from klet.model.roles import NodeResources
from klet.runtime.claims import NoClaims
from klet.runtime.config.container_options import NoDevices
from klet.runtime.config.id_blocks import UNIT, IdBlocks, choose_range
from klet.runtime.config.user_namespaces import UserNamespaceManager
from klet.runtime.host_ports import FreePorts
from klet.runtime.runtime_class import RuntimeHandlers
from klet.simulation.fake_host import MemoryMappings, MemoryVolumes

MAX_PODS = 110


def simulated_container_ports(
    runtime: RuntimeService,
    *,
    objects: NodeObjects,
    mappings: MemoryMappings,
    volumes: MemoryVolumes,
    resources: NodeResources,
    randomness: random.Random,
) -> ContainerPorts:
    handlers = RuntimeHandlers(runtime=runtime)
    users = UserNamespaceManager(
        blocks=IdBlocks(ids=choose_range(per_pod=UNIT, max_pods=MAX_PODS)),
        files=mappings,
        handlers=handlers,
        randomness=randomness,
    )
    users.restore(mappings.written)
    return ContainerPorts(
        objects=objects.data,
        services=objects.services,
        resources=resources,
        runtime_classes=objects.runtime_classes,
        handlers=handlers,
        devices=NoDevices(),
        claims=NoClaims(),
        volume_files=volumes,
        sub_paths=volumes,
        user_namespaces=users,
        host_ports=FreePorts(),
    )
