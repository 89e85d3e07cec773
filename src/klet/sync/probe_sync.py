"""Publishes changed probe results to the pod's status at once, and to its worker (handleProbeSync)."""

from typing import Protocol

from klet.aio.broadcast import Lagged, Subscription
from klet.model.pods import PodUID, uid_of
from klet.model.probes import ProbeKind, ProbeResult
from klet.pods.store import PodStore
from klet.probes.results import ProbeChange
from klet.sync.pod_status import PodStatuses
from klet.sync.worker_state import PodUpdate, UpdateKind


class ProbeChanges(Protocol):
    """Changes of probe results."""

    def changes(self) -> Subscription[ProbeChange]: ...


class Workers(Protocol):
    """The pod workers."""

    def update(self, update: PodUpdate) -> None: ...

    def wake(self, uid: PodUID) -> None: ...


class ProbeSync:
    """Follows the probe results."""

    def __init__(self, *, probes: ProbeChanges, pods: PodStore, statuses: PodStatuses, workers: Workers) -> None:
        self._probes = probes
        self._pods = pods
        self._statuses = statuses
        self._workers = workers

    async def run(self) -> None:
        with self._probes.changes() as changes:
            async for change in changes:
                if isinstance(change, Lagged):
                    for each in self._pods.all():
                        self._workers.wake(uid_of(each))
                    continue
                pod = self._pods.get(change.uid)
                if pod is not None and is_news(change):
                    self._statuses.note_probe(pod, change.key, change.result, cause=change.cause)
                    self._workers.update(PodUpdate(kind=UpdateKind.SYNC, pod=pod, cause=change.cause))


def is_news(change: ProbeChange) -> bool:
    """Return whether a change has consequences: of liveness only a failure has."""
    return change.key.kind is not ProbeKind.LIVENESS or change.result is ProbeResult.FAILURE
