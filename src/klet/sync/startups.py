"""Measures how long pods of the API server take to start, as its users see it (upstream: PodStartupLatencyTracker).

A start ends when the API server shows all containers running. What the node cannot help is left out of the service
level: pulls of images and init containers. Pods that mount more than configuration and scratch space do not count.
"""

from klet.aio.broadcast import Lagged
from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.api.volume import Volume
from klet.model.pods import PodUID, is_static, uid_of
from klet.model.pull_times import PullTimes
from klet.model.roles import PodsInRuntime
from klet.model.runtime import PodRuntimeStatus
from klet.pods.store import PodStore
from klet.status.phase import is_terminal
from klet.sync.metrics import StartupMetrics


class PodStartups:
    """Follows the pods that start."""

    def __init__(
        self, *, pods: PodStore, seen: PodsInRuntime, pulls: PullTimes, metrics: StartupMetrics, clock: Clock
    ) -> None:
        self._pods = pods
        self._seen = seen
        self._pulls = pulls
        self._metrics = metrics
        self._clock = clock
        self._coming: set[PodUID] = set()
        self._has_seen_network = False

    async def run(self) -> None:
        with self._pods.changes() as changes:
            self._look_at_all()
            async for change in changes:
                pod = None if isinstance(change, Lagged) else self._pods.by_full_name(change)
                if pod is None:
                    self._look_at_all()
                else:
                    self._look(pod)

    def _look_at_all(self) -> None:
        self._coming &= self._pods.uids()
        self._pulls.keep_only(frozenset(self._coming))
        for pod in self._pods.all():
            self._look(pod)

    def _look(self, pod: Pod) -> None:
        uid = uid_of(pod)
        # The API server never sees a static pod before it runs.
        if is_static(pod) or is_terminal(pod.status.phase):
            self._coming.discard(uid)
        elif pod.status.start_time is None:
            self._coming.add(uid)
        elif uid in self._coming and has_started(pod):
            self._coming.discard(uid)
            self._measure(pod)

    def _measure(self, pod: Pod) -> None:
        created = pod.metadata.creation_timestamp
        if created is None:
            return
        whole = (self._clock.now() - created).total_seconds()
        self._metrics.whole.observe(whole)
        if is_stateful(pod):
            return
        own = whole - self._pulls.seconds(uid_of(pod)) - init_seconds(pod, self._seen.pods().get(uid_of(pod)))
        self._metrics.own.observe(own)
        if not pod.spec.host_network and not self._has_seen_network:
            self._has_seen_network = True
            self._metrics.first_with_network.set(own)


def has_started(pod: Pod) -> bool:
    """Return whether the API server shows all containers of a pod running."""
    shown = pod.status.container_statuses
    return len(shown) == len(pod.spec.containers) and all(
        (running := each.state.running) is not None and running.started_at is not None for each in shown
    )


def is_stateful(pod: Pod) -> bool:
    """Return whether a pod mounts more than configuration and scratch space."""
    return any(not _is_stateless(volume) for volume in pod.spec.volumes)


def init_seconds(pod: Pod, status: PodRuntimeStatus | None) -> float:
    """Return how long the init containers of a pod have run, sidecars left out."""
    names = {each.name for each in pod.spec.init_containers if not is_sidecar(each)}
    return sum(
        (record.finished_at - record.started_at).total_seconds()
        for record in (status.containers if status is not None else ())
        if record.name in names and record.started_at is not None and record.finished_at is not None
    )


def _is_stateless(volume: Volume) -> bool:
    kinds = (volume.secret, volume.config_map, volume.downward_api, volume.empty_dir, volume.projected)
    return any(kind is not None for kind in kinds)
