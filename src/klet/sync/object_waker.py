"""Wakes a pod whose container waits for a missing config map or secret as soon as that object changes."""

from typing import Final, Protocol

from klet.aio.broadcast import Lagged
from klet.api.pod import Pod, PodStatus
from klet.model.objects import ObjectKind, ObjectRef, pod_config_maps, pod_secrets
from klet.model.pods import PodUID, uid_of
from klet.model.roles import ObjectChanges
from klet.pods.store import PodStore
from klet.runtime.errors import CREATE_CONFIG_ERROR
from klet.status.board import StatusBoard

_NAMES: Final = {ObjectKind.CONFIG_MAP: pod_config_maps, ObjectKind.SECRET: pod_secrets}


class WakeableWorkers(Protocol):
    """The pod workers, each of which may be waiting for the end of a back-off."""

    def wake(self, uid: PodUID) -> None: ...


class ObjectWaker:
    """Wakes pods that an object was missing for. Volumes need no waking: their manager follows objects itself."""

    def __init__(
        self, *, objects: ObjectChanges, pods: PodStore, statuses: StatusBoard, workers: WakeableWorkers
    ) -> None:
        self._objects = objects
        self._pods = pods
        self._statuses = statuses
        self._workers = workers

    async def run(self) -> None:
        with self._objects.changes() as changes:
            async for ref in changes:
                for pod in self._pods.all():
                    status = self._statuses.get(uid_of(pod))
                    if (
                        status is not None
                        and lacks_something(status)
                        and (isinstance(ref, Lagged) or refers_to(pod, ref))
                    ):
                        self._workers.wake(uid_of(pod))


def refers_to(pod: Pod, ref: ObjectRef) -> bool:
    return pod.metadata.namespace == ref.namespace and ref.name in _NAMES[ref.kind](pod)


def lacks_something(status: PodStatus) -> bool:
    """Return whether a container waits for an object that its configuration needs."""
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    waiting = (each.state.waiting for each in every)
    return any(each is not None and each.reason == CREATE_CONFIG_ERROR for each in waiting)
