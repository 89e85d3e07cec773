"""What the resource managers say of a container when it is created and started (internal container lifecycle)."""

from collections.abc import Sequence

from klet.api.pod import Pod
from klet.model.allocation import Pins
from klet.model.pods import PodUID
from klet.model.roles import ContainerPins
from klet.model.runtime import ContainerId


class PinnedContainers:
    """Asks each manager in turn; their answers do not overlap."""

    def __init__(self, *, managers: Sequence[ContainerPins]) -> None:
        self._managers = tuple(managers)

    def pins_of(self, uid: PodUID, container: str) -> Pins:
        pins = [manager.pins_of(uid, container) for manager in self._managers]
        return Pins(
            cpus=frozenset().union(*(each.cpus for each in pins)),
            memory_nodes=frozenset().union(*(each.memory_nodes for each in pins)),
            lifts_quota=any(each.lifts_quota for each in pins),
        )

    async def before_start(self, pod: Pod, container: str, container_id: ContainerId, cpus: frozenset[int]) -> None:
        for manager in self._managers:
            await manager.before_start(pod, container, container_id, cpus)
