"""Where the pods of a story come from: files, and an API server that deletes gracefully and remembers statuses."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import assert_never

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.api.pod import Pod, PodStatus
from klet.api.times import Time
from klet.app.wiring import Agent
from klet.model.pods import PodUID, uid_of
from klet.simulation import plan as steps
from klet.simulation.chronicle import Chronicle
from klet.simulation.plan import PodStep, StoryPlan
from klet.simulation.pods import API, FILE, with_debugger, with_other_image
from klet.sources.config import PodConfig
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage


class SimulatedSources:
    """The wanted pods. They outlive the agent, which gets them through its PodConfig."""

    def __init__(self, *, plan: StoryPlan, chronicle: Chronicle, clock: Clock, randomness: random.Random) -> None:
        self._plan = plan
        self._chronicle = chronicle
        self._clock = clock
        self._random = randomness
        self._pods: dict[str, dict[PodUID, Pod]] = {FILE: {}, API: {}}
        self._config: PodConfig | None = None
        self._silent = ""
        self.statuses: dict[PodUID, PodStatus] = {}
        """What was reported last."""

    async def open(self, config: PodConfig) -> None:
        """Connect an agent to the pods.

        One source may deliver later than the other; until then none of its pods may be treated as removed.
        """
        later = self._random.choice((FILE, API))
        pause = timedelta(seconds=self._random.choice((0.0, 0.0, 5.0)) * self._random.random())
        self._config = config
        self._silent = later if pause else ""
        self._send(API if later == FILE else FILE)
        await self._clock.sleep(pause)
        self._silent = ""
        self._send(later)

    def close(self, agent: Agent) -> None:
        """Disconnect the agent, which is gone. What it did not act on was not delivered."""
        self._config = None
        for uid, history in self._chronicle.histories.items():
            if history.removal is not None:
                state = agent.ledger.get(uid)
                is_forgotten = state is None and agent.statuses.get(uid) is None
                history.removal.is_seen = is_forgotten or (state is not None and state.is_terminating)

    def apply(self, step: PodStep) -> None:
        match step:
            case steps.AddPod(number):
                self._add(number)
                self._send(self._plan.pods[number].source)
            case steps.RemovePod(number):
                self._remove(self._plan.pods[number].uid, self._plan.pods[number].source)
            case steps.ReplacePod(number, by):
                self._drop(self._plan.pods[number].uid)
                self._add(by)
                self._send(FILE)
            case steps.ChangePod(number, container):
                self._change(self._plan.pods[number].uid, lambda pod: with_other_image(pod, index=container))
            case steps.DebugPod(number):
                self._change(self._plan.pods[number].uid, with_debugger)
            case unknown:
                assert_never(unknown)

    def remove_all(self) -> None:
        for source, pods in self._pods.items():
            for uid in list(pods):
                self._remove(uid, source)

    def remove_finished(self, ledger: WorkerLedger) -> None:
        """Remove deleted pods that have finished on the node, as the API server does."""
        for uid, pod in list(self._pods[API].items()):
            state = ledger.get(uid)
            is_over = state is not None and state.stage is Stage.FINISHED
            if pod.metadata.deletion_timestamp is not None and is_over:
                del self._pods[API][uid]
                self._send(API)

    def _send(self, source: str) -> None:
        if self._config is not None and source != self._silent:
            pods = self._pods[source].values()
            self._config.set_pods(source, tuple(self._with_status(pod) for pod in pods))
            for history in self._chronicle.histories.values():
                if history.removal is not None and history.source == source:
                    history.removal.is_seen = True

    def _with_status(self, pod: Pod) -> Pod:
        """Return the pod with the status that was reported: the API server has it, a file does not."""
        known = self.statuses.get(uid_of(pod))
        return replace(pod, status=known) if known is not None and uid_of(pod) in self._pods[API] else pod

    def _add(self, number: int) -> None:
        planned = self._plan.pods[number]
        self._pods[planned.source][planned.uid] = planned.pod
        self._chronicle.want(planned.pod, planned.source)

    def _remove(self, uid: PodUID, source: str) -> None:
        if source == FILE:
            self._drop(uid)
        elif uid in self._pods[API] and self._pods[API][uid].metadata.deletion_timestamp is None:
            pod = self._pods[API][uid]
            metadata = replace(
                pod.metadata,
                deletion_timestamp=Time.of(self._clock.now()),
                deletion_grace_period_seconds=pod.spec.termination_grace_period_seconds,
            )
            self._pods[API][uid] = replace(pod, metadata=metadata)
            self._chronicle.unwant(uid)
        self._send(source)

    def _drop(self, uid: PodUID) -> None:
        if self._pods[FILE].pop(uid, None) is not None:
            self._chronicle.unwant(uid)

    def _change(self, uid: PodUID, alter: Callable[[Pod], Pod]) -> None:
        pod = self._pods[API].get(uid)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        self._pods[API][uid] = changed = alter(pod)
        self._chronicle.change(changed)
        self._send(API)
