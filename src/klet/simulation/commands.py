"""What commands inside the containers of a story answer: probes and hooks, and what they have answered so far."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import Struct, field

from klet.model.pods import PodUID
from klet.model.probes import ProbeKind
from klet.runtime import labels
from klet.testing.fake_runtime.lives import ExecResult
from klet.wire import cri_v1_pb2 as pb

T = TypeVar("T")

POST_START = "post-start"
PRE_STOP = "pre-stop"


class CommandResults(Struct, frozen=True, kw_only=True):
    """The results of the commands in one container at each attempt; the last of each is repeated."""

    startup_failures: tuple[int, ...] = (0,)
    """How many startup probes fail before the first good one."""
    post_start: tuple[ExecResult, ...] = (ExecResult(),)
    pre_stop: tuple[ExecResult, ...] = (ExecResult(),)


class Attempt(NamedTuple):
    """One instance of a container."""

    uid: PodUID
    container: str
    number: int


Answers: TypeAlias = list[bool]


class Record(Struct):
    """What the commands of one instance have answered."""

    probes: defaultdict[ProbeKind, Answers] = field(default_factory=lambda: defaultdict(list))
    hooks: dict[str, ExecResult] = field(default_factory=dict)


class Commands:
    """The chooser of the fake runtime's script, and its memory."""

    def __init__(self, command_results: Mapping[tuple[PodUID, str], CommandResults]) -> None:
        self._command_results = command_results
        self._unready: dict[tuple[PodUID, str], datetime] = {}
        self._not_live: dict[Attempt, datetime] = {}
        self._records: defaultdict[Attempt, Record] = defaultdict(Record)

    def flip_readiness(self, uid: PodUID, container: str, *, now: datetime) -> None:
        if self._unready.pop((uid, container), None) is None:
            self._unready[uid, container] = now

    def fail_liveness(self, attempt: Attempt, *, now: datetime) -> None:
        """Let the liveness probes of the instance fail from now on; those of the next instance succeed."""
        self._not_live.setdefault(attempt, now)

    def answer(self, config: pb.ContainerConfig, command: Sequence[str]) -> ExecResult:
        attempt = attempt_of(config)
        command_results = self._command_results.get((attempt.uid, attempt.container), CommandResults())
        match command[0]:
            case "post-start":
                return self._hook(attempt, POST_START, command_results.post_start)
            case "pre-stop":
                return self._hook(attempt, PRE_STOP, command_results.pre_stop)
            case kind:
                return self._probe(attempt, ProbeKind(kind), command_results)

    def record(self, attempt: Attempt) -> Record:
        return self._records[attempt]

    def unready(self, uid: PodUID) -> dict[str, datetime]:
        """Return the containers of a pod that fail their readiness probes, and since when."""
        return {name: since for (owner, name), since in self._unready.items() if owner == uid}

    def not_live_since(self, attempt: Attempt) -> datetime | None:
        return self._not_live.get(attempt)

    def is_reason_to_kill(self, attempt: Attempt) -> bool:
        """Return whether a probe or a hook of the instance has failed, so that it may be stopped."""
        record = self._records[attempt]
        post_start = record.hooks.get(POST_START)
        return (
            False in record.probes[ProbeKind.LIVENESS]
            or False in record.probes[ProbeKind.STARTUP]
            or (post_start is not None and post_start.exit_code != 0)
        )

    def _probe(self, attempt: Attempt, kind: ProbeKind, command_results: CommandResults) -> ExecResult:
        answers = self._records[attempt].probes[kind]
        match kind:
            case ProbeKind.READINESS:
                is_good = (attempt.uid, attempt.container) not in self._unready
            case ProbeKind.LIVENESS:
                is_good = attempt not in self._not_live
            case ProbeKind.STARTUP:
                is_good = len(answers) >= _of(command_results.startup_failures, attempt)
        answers.append(is_good)
        return ExecResult(exit_code=0 if is_good else 1)

    def _hook(self, attempt: Attempt, kind: str, results: Sequence[ExecResult]) -> ExecResult:
        result = _of(results, attempt)
        self._records[attempt].hooks[kind] = result
        return result


def attempt_of(config: pb.ContainerConfig) -> Attempt:
    return Attempt(PodUID(config.labels[labels.POD_UID]), config.metadata.name, config.metadata.attempt)


def _of(each: Sequence[T], attempt: Attempt) -> T:
    return each[min(attempt.number, len(each) - 1)]
