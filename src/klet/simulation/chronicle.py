"""What has happened in a story so far: every container there ever was, what was wanted when, and what disturbed it."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct, field

from klet.aio.clock import Clock
from klet.api.container import Container
from klet.api.pod import Pod
from klet.model.pods import PodUID, full_name
from klet.runtime import labels
from klet.simulation.commands import Attempt, Commands, attempt_of
from klet.simulation.lives import LONGEST_HOOK
from klet.simulation.pods import RESTARTS_ALL
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.fake_runtime.world import FakeContainer as RuntimeContainer
from klet.testing.fake_runtime.world import Sandbox


class Instance(Struct, eq=False):
    """A container that exists or existed."""

    container: RuntimeContainer
    uid: PodUID
    name: str
    restart_count: int
    agent_run: int
    """The run of the agent that made it."""
    made_for: "History"
    """The pod as it was wanted then: one that comes back under the same UID is another."""
    attempt: Attempt
    is_unnoticed: bool = False
    """It was started by a call whose caller had given up, and removed as unknown."""

    @property
    def is_alive(self) -> bool:
        return self.container.is_alive

    @property
    def has_started(self) -> bool:
        """Whether it ever ran."""
        return self.container.started_at > 0

    @property
    def exists(self) -> bool:
        """Whether it has not been removed yet."""
        return self.container.id in self.container.sandbox.containers

    @property
    def spec_hash(self) -> str:
        return self.container.config.annotations[labels.HASH]


class PodRemoval(Struct, eq=False):
    """A pod that its source no longer has."""

    wanted_since: datetime
    is_seen: bool = False
    """Whether an agent has seen it: a pod that comes back before counts as never removed."""


class MachineReboot(Struct, frozen=True):
    """A reboot, and the pods of which something ran until then."""

    at: datetime
    ended: frozenset[PodUID]


class History(Struct, eq=False, kw_only=True):
    """A pod, as the sources had it."""

    pod: Pod
    source: str
    is_wanted: bool = True
    since: datetime
    """Since when it is wanted, or not wanted any more, or in this form."""
    removal: "PodRemoval | None" = None
    """How it ceased to be wanted."""
    comes_back: bool = False
    """It was wanted before under the same UID, and may still be terminating."""
    agent_run: int = 0
    """The run of the agent that got it, or will get it."""
    instances: list[Instance] = field(default_factory=list)
    phase: str = ""
    restart_counts: dict[str, int] = field(default_factory=dict)

    @property
    def grace(self) -> timedelta:
        return timedelta(seconds=self.pod.spec.termination_grace_period_seconds or 0)

    @property
    def patience(self) -> timedelta:
        """How long a worker of the pod may be busy: with a stop, or with hooks after starts."""
        spec = self.pod.spec
        hooks = sum(
            container.lifecycle is not None and container.lifecycle.post_start is not None
            for container in (*spec.init_containers, *spec.containers)
        )
        return self.grace + hooks * LONGEST_HOOK

    def restart_sources(self) -> list[Instance]:
        """Return what ended so that all containers of the pod have to restart, the newest last."""
        ruled = {each.name for each in self.pod.spec.containers if each.restart_policy_rules}
        ended = [each for each in self.instances if each.name in ruled and each.container.finished_at]
        asked = [each for each in ended if each.container.exit_code == RESTARTS_ALL and each.made_for is self]
        return sorted(asked, key=lambda each: each.container.finished_at)

    def container(self, name: str) -> Container | None:
        spec = self.pod.spec
        return next((each for each in (*spec.init_containers, *spec.containers) if each.name == name), None)

    def newest(self, name: str) -> Instance | None:
        """Return what counts as the container now: of a previous pod with this UID only what is not removed."""
        for each in reversed(self.instances):
            if each.name == name and (each.made_for is self or each.exists):
                return each
        return None


class Chronicle:
    """Written by the story as it goes; the invariants read it."""

    def __init__(self, *, runtime: FakeRuntime, commands: Commands, clock: Clock, start: datetime) -> None:
        self._runtime = runtime
        self._clock = clock
        self.commands = commands
        self._seen: dict[str, Instance] = {}
        self.histories: dict[PodUID, History] = {}
        self.agent_run = 0
        self.disturbed_at = start
        self.writes = 0
        self.in_flight = 0
        """Calls that may change something and have not been answered yet."""
        self.ended_sandboxes: set[str] = set()
        self.reboots: list[MachineReboot] = []
        self.probes_may_fail = False
        """Calls that run commands go wrong, so that a container may seem unhealthy that is not."""
        self.violations: list[str] = []

    @property
    def now(self) -> datetime:
        return self._clock.now()

    def want(self, pod: Pod, source: str) -> None:
        uid = PodUID(pod.metadata.uid)
        self.look()
        known = self.histories.get(uid)
        if known is not None and known.removal is not None and not known.removal.is_seen:
            known.is_wanted, known.since, known.removal = True, known.removal.wanted_since, None
            return
        left = [each for each in known.instances if each.exists] if known is not None else []
        self.histories[uid] = History(
            pod=pod,
            source=source,
            since=self.now,
            comes_back=known is not None,
            agent_run=self.agent_run,
            instances=left,
        )

    def change(self, pod: Pod) -> None:
        history = self.histories[PodUID(pod.metadata.uid)]
        history.pod, history.since = pod, self.now

    def unwant(self, uid: PodUID) -> None:
        history = self.histories[uid]
        if history.is_wanted:
            history.removal = PodRemoval(history.since)
            history.is_wanted, history.since = False, self.now

    def begin_agent_run(self) -> None:
        """Count the start of an agent."""
        self.agent_run += 1
        self.disturb()

    def note_reboot(self, *, has_run: bool) -> None:
        """Note what the machine, which is about to be rebooted, has running.

        If no agent has run since the last reboot, the next one sees the two as one.
        """
        self.look()
        ended = frozenset(each.uid for each in self.alive())
        if not has_run and self.reboots:
            ended |= self.reboots.pop().ended
        self.reboots.append(MachineReboot(self.now, ended))

    def disturb(self) -> None:
        self.disturbed_at = self.now

    def violate(self, what: str) -> None:
        self.violations.append(f"at {self.now:%H:%M:%S.%f}: {what}")

    def look(self) -> None:
        """Record the containers that are new."""
        for container in self._runtime.containers():
            if container.id in self._seen:
                continue
            uid = PodUID(container.config.labels[labels.POD_UID])
            instance = Instance(
                container=container,
                uid=uid,
                name=container.config.metadata.name,
                restart_count=int(container.config.annotations[labels.RESTART_COUNT]),
                agent_run=self.agent_run,
                made_for=self.histories[uid],
                attempt=attempt_of(container.config),
            )
            self._seen[container.id] = instance
            self.histories[uid].instances.append(instance)

    def instance(self, container_id: str) -> Instance | None:
        return self._seen.get(container_id)

    def instances(self) -> int:
        return len(self._seen)

    def alive(self) -> Iterator[Instance]:
        return (self._seen[each.id] for each in self._runtime.containers() if each.is_alive and each.id in self._seen)

    def sandboxes_of(self, uid: PodUID) -> list[Sandbox]:
        return [sandbox for sandbox in self._runtime.sandboxes() if sandbox.config.metadata.uid == uid]

    def rivals(self, uid: PodUID) -> list[History]:
        """Return other pods of the same source and name."""
        mine = self.histories[uid]
        name = full_name(mine.pod)
        return [
            other
            for key, other in self.histories.items()
            if key != uid and other.source == mine.source and full_name(other.pod) == name
        ]
