"""Starts and stops the probe workers of pods (probe manager), and triggers readiness probes of started containers."""

import asyncio
import random
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct, field

from klet.aio.broadcast import Lagged
from klet.aio.clock import Clock
from klet.api.container import Container
from klet.api.container_status import ContainerStatus
from klet.api.handlers import Probe
from klet.api.pod import Pod, PodStatus
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID, uid_of
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult
from klet.model.readiness import is_older_than_agent
from klet.model.runtime import ContainerId
from klet.probes.decision import find_container, instance_of
from klet.probes.findings import describe_bad_periods
from klet.probes.periods import ProbePeriods, ProbePeriodsError, probe_of, probe_periods, probed_containers
from klet.probes.results import ProbeResults
from klet.probes.steps import Steps
from klet.probes.worker import ProbeCarrier, ProbeWorker, ReportedStatuses, WorkerPorts, build_rules, period_of

WorkerName: TypeAlias = tuple[str, ProbeKind]
"""A worker within its pod: the container's name, and which of its probes."""

RestartRule: TypeAlias = Callable[[Container, Pod, int, PodStatus], bool]
"""Whether a container of a pod is started again after an exit with that code."""


class _Entry(Struct):
    worker: ProbeWorker
    task: asyncio.Task[None] | None = None


class _PodEntry(Struct):
    periods: ProbePeriods
    workers: dict[WorkerName, _Entry] = field(default_factory=dict)
    ended: dict[WorkerName, ContainerId | None] = field(default_factory=dict)
    """Workers that have ended, with the instance that they probed."""


class ProbeManager:
    """Owns the probe workers of all pods, one task each."""

    def __init__(
        self,
        *,
        statuses: ReportedStatuses,
        results: ProbeResults,
        prober: ProbeCarrier,
        restarts: RestartRule,
        recorder: CauseRecorder,
        clock: Clock,
        randomness: random.Random,
        agent_started: datetime,
    ) -> None:
        self._ports = WorkerPorts(
            statuses=statuses,
            results=results,
            prober=prober,
            recorder=recorder,
            clock=clock,
            steps=Steps(clock=clock),
        )
        self._restarts = restarts
        self._random = randomness
        self._agent_started = agent_started
        self._pods: dict[PodUID, _PodEntry] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run the workers, and follow the status board for containers that have started."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                with self._ports.statuses.changes() as changes:
                    for uid, pod in self._pods.items():
                        for name, entry in pod.workers.items():
                            self._start(uid, name, entry)
                    async for change in changes:
                        for uid in self._pods if isinstance(change, Lagged) else (change,):
                            self.trigger_readiness(uid)
            finally:
                self._group = None

    def add_pod(self, pod: Pod) -> None:
        """Start workers for probes of the pod that have none. Called in every sync; running workers are not changed."""
        uid = uid_of(pod)
        for container in probed_containers(pod):
            for kind in ProbeKind:
                if (probe := probe_of(container, kind)) is not None:
                    self._add(uid, pod, container, kind, probe)

    def stop_liveness_and_startup(self, pod: Pod) -> None:
        """Stop these probes of a pod that is about to stop, so that they do not kill its containers meanwhile."""
        names = {container.name for container in pod.spec.containers}
        entry = self._pods.get(uid_of(pod))
        for name in list(entry.workers) if entry is not None else ():
            if name[0] in names and name[1] is not ProbeKind.READINESS:
                self._end(uid_of(pod), name)

    def remove_pod(self, uid: PodUID) -> None:
        entry = self._pods.get(uid)
        for name in list(entry.workers) if entry is not None else ():
            self._end(uid, name)
        self._pods.pop(uid, None)

    def clean_up(self, known: Collection[PodUID]) -> None:
        """Stop probing pods that are not among the known ones."""
        for uid in [uid for uid in self._pods if uid not in known]:
            self.remove_pod(uid)

    def workers_of(self, uid: PodUID) -> frozenset[WorkerName]:
        """Return the probes that are being run for a pod, by container and kind."""
        entry = self._pods.get(uid)
        return frozenset(entry.workers) if entry is not None else frozenset()

    def trigger_readiness(self, uid: PodUID) -> None:
        """Probe now those containers that have started and are not known to be ready."""
        reported = self._ports.statuses.get(uid)
        entry = self._pods.get(uid)
        if reported is None or entry is None:
            return
        for (name, kind), probing in entry.workers.items():
            container = find_container(reported, name) if kind is ProbeKind.READINESS else None
            if container is not None and self._is_urgent(container, probing.worker):
                self._hasten(uid, (name, kind), probing)

    def _is_urgent(self, container: ContainerStatus, worker: ProbeWorker) -> bool:
        running = container.state.running
        if running is None or not container.started:
            return False
        instance = instance_of(container)
        if self._ports.results.get(ProbeKey(instance, ProbeKind.READINESS)) is ProbeResult.SUCCESS:
            return False
        if worker.is_asking and worker.id == instance:
            return False
        # After a restart of the agent the first probes are spread; what was reported stays until then.
        return worker.has_asked or not is_older_than_agent(running.started_at, self._agent_started)

    def _add(self, uid: PodUID, pod: Pod, container: Container, kind: ProbeKind, probe: Probe) -> None:
        entry = self._pods.get(uid)
        if entry is None:
            entry = self._pods[uid] = _PodEntry(self._periods(pod))
        name = (container.name, kind)
        if (existing := entry.workers.get(name)) is not None:
            existing.worker.pod = pod
            return
        if name in entry.ended and entry.ended[name] == self._instance(uid, container.name):
            return
        period = entry.periods.get(name) or period_of(probe)
        rules = build_rules(pod, container, kind, probe, restarts=self._restarts, agent_started=self._agent_started)
        worker = ProbeWorker(
            pod=pod,
            container=container,
            probe=probe,
            rules=rules,
            period=period,
            delay=self._first_delay(period),
            ports=self._ports,
        )
        entry.ended.pop(name, None)
        entry.workers[name] = _Entry(worker)
        self._start(uid, name, entry.workers[name])

    def _start(self, uid: PodUID, name: WorkerName, entry: _Entry) -> None:
        """Start the task of a worker; before `run` nothing is started: `run` starts what is there."""
        if self._group is not None:
            task_name = f"probe {uid} {name[0]} {name[1]}"
            entry.task = self._group.create_task(self._work(uid, name, entry), name=task_name)

    def _hasten(self, uid: PodUID, name: WorkerName, entry: _Entry) -> None:
        entry.worker.hasten()
        if not entry.worker.is_asking and entry.task is not None:
            entry.task.cancel()  # it only sleeps
            self._start(uid, name, entry)

    async def _work(self, uid: PodUID, name: WorkerName, entry: _Entry) -> None:
        await entry.worker.run()
        entry.task = None
        self._end(uid, name)

    def _end(self, uid: PodUID, name: WorkerName) -> None:
        pod = self._pods[uid]
        ended = pod.workers.pop(name)
        pod.ended[name] = ended.worker.id
        ended.worker.forget()
        if ended.task is not None:
            ended.task.cancel()

    def _first_delay(self, period: timedelta) -> timedelta:
        """Return a random delay of the first probe after a start of the agent: all pods arrive at once then."""
        is_young = self._ports.clock.now() - self._agent_started < period
        return period * self._random.random() if is_young else timedelta()

    def _instance(self, uid: PodUID, container: str) -> ContainerId | None:
        reported = self._ports.statuses.get(uid)
        found = find_container(reported, container) if reported is not None else None
        return instance_of(found) if found is not None else None

    def _periods(self, pod: Pod) -> ProbePeriods:
        try:
            return probe_periods(pod)
        except ProbePeriodsError as error:
            self._ports.recorder.record(describe_bad_periods(pod, str(error)))
            return {}
