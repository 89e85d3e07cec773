"""Whether the container runtime and its network can be relied on (runtimeState, updateRuntimeUp).

A runtime that does not answer for a moment is no reason to worry: only after half a minute it counts as down.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.backoff import exponential_delays
from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.cri.errors import CriError
from klet.cri.port import StatusCall
from klet.model.causes import CauseRecorder
from klet.model.error_text import join_errors
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

DECIDER = "node.runtime_state"
PERIOD = timedelta(seconds=5)
RETRY = timedelta(seconds=1)
DOWN_AFTER = timedelta(seconds=30)
FIRST_PAUSE = timedelta(milliseconds=100)
LONGEST_PAUSE = timedelta(seconds=5)

RUNTIME_READY = "RuntimeReady"
NETWORK_READY = "NetworkReady"


class RuntimeHandler(Struct, frozen=True, kw_only=True):
    """What one way to run containers can do."""

    name: str
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


class RuntimeReport(Struct, frozen=True, kw_only=True):
    """The runtime's status, judged. An error is None if all is well."""

    runtime_error: str | None
    network_error: str | None
    handlers: tuple[RuntimeHandler, ...] = ()
    supplemental_groups_policy: bool | None = None
    """None if the runtime does not report it."""


class RuntimeState:
    """The last report of the runtime, and how old it is. Written by the runtime checks only."""

    def __init__(self, *, pleg_error: Callable[[], str | None], clock: Clock) -> None:
        self._pleg_error = pleg_error
        self._clock = clock
        self._report = RuntimeReport(runtime_error=None, network_error="network state unknown")
        self._has_answered = False
        self._well_at: datetime | None = None
        self._noted = asyncio.Event()
        self._changes = Broadcast[RuntimeReport]()

    @property
    def report(self) -> RuntimeReport:
        return self._report

    @property
    def has_answered(self) -> bool:
        """Whether the runtime has reported a status yet."""
        return self._has_answered

    @property
    def well_at(self) -> datetime | None:
        """When the runtime last reported to be ready."""
        return self._well_at

    def note(self, report: RuntimeReport) -> None:
        """Record the runtime's status. Its features are believed only while it is ready."""
        before, was_late = self._report, describe_age(self._well_at, now=self._clock.now()) is not None
        if report.runtime_error is None:
            self._well_at = self._clock.now()
        else:
            report = replace(
                report, handlers=before.handlers, supplemental_groups_policy=before.supplemental_groups_policy
            )
        self._report = report
        self._has_answered = True
        self._noted.set()
        self._noted = asyncio.Event()
        if report != before or was_late:
            self._changes.send(report)

    def changes(self) -> Subscription[RuntimeReport]:
        """Subscribe to reports that differ from the one before, or that end a silence."""
        return self._changes.subscribe()

    def errors(self) -> tuple[str, ...]:
        """Return why no pod should be synced now; empty if all is well."""
        pleg = self._pleg_error()
        found = (
            describe_age(self._well_at, now=self._clock.now()),
            f"PLEG is not healthy: {pleg}" if pleg is not None else None,
            self._report.runtime_error,
        )
        return tuple(error for error in found if error is not None)

    def network_error(self) -> str | None:
        """Return why no pod with its own network should be started now; None if all is well."""
        return self._report.network_error

    async def until_well(self) -> None:
        """Return when there are no errors."""
        delays = exponential_delays(first=FIRST_PAUSE, longest=LONGEST_PAUSE)
        logged: tuple[str, ...] = ()
        while errors := self.errors():
            if errors != logged:
                logger.info("Skipping pod synchronization", extra={"error": join_errors(errors)})
                logged = errors
            await first_of(self._noted.wait(), self._clock.sleep(next(delays)))


class RuntimeChecks:
    """Reads the runtime's status periodically."""

    def __init__(self, *, runtime: StatusCall, state: RuntimeState, recorder: CauseRecorder, clock: Clock) -> None:
        self._runtime = runtime
        self._state = state
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._failure = ""

    async def run(self) -> None:
        while True:
            is_well = await self.check()
            await self._clock.sleep(PERIOD if is_well else RETRY)

    async def check(self) -> bool:
        """Read the status once; return whether runtime and network are ready."""
        try:
            answer = await self._runtime.status(cri.StatusRequest())
        except CriError as error:
            # A runtime may be away for hours: the same line every second would hide all others.
            is_new, self._failure = str(error) != self._failure, str(error)
            level = logging.WARNING if is_new else logging.DEBUG
            logger.log(level, "Container runtime sanity check failed", extra={"error": self._failure})
            return False
        self._failure = ""
        if not answer.HasField("status"):
            logger.warning("Container runtime status is nil")
            return False
        before, report = self._state.report, judge_status(answer)
        self._state.note(report)
        self._record(Reason.RUNTIME_READY, Reason.RUNTIME_NOT_READY, before.runtime_error, report.runtime_error)
        self._record(Reason.NETWORK_READY, Reason.NETWORK_NOT_READY, before.network_error, report.network_error)
        return report.runtime_error is None and report.network_error is None

    def _record(self, ready: Reason, not_ready: Reason, before: str | None, now: str | None) -> None:
        if before == now:
            return
        self._decisions.for_node().record(
            ready if now is None else not_ready,
            now or "the container runtime says so",
            next_step="" if now is None else "ask again every second",
        )


def judge_status(answer: cri.StatusResponse) -> RuntimeReport:
    """Return what the runtime's conditions mean for the node. A condition it does not name is not met."""
    conditions = {condition.type: condition for condition in answer.status.conditions}
    return RuntimeReport(
        runtime_error=_complaint("container runtime not ready", conditions.get(RUNTIME_READY)),
        network_error=_complaint("container runtime network not ready", conditions.get(NETWORK_READY)),
        handlers=tuple(
            RuntimeHandler(
                name=handler.name,
                recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
                user_namespaces=handler.features.user_namespaces,
            )
            for handler in answer.runtime_handlers
        ),
        supplemental_groups_policy=(
            answer.features.supplemental_groups_policy if answer.HasField("features") else None
        ),
    )


def describe_age(well_at: datetime | None, *, now: datetime) -> str | None:
    """Return what is wrong with a runtime that was last well then."""
    if well_at is None:
        return "container runtime status check may not have completed yet"
    return "container runtime is down" if now - well_at >= DOWN_AFTER else None


def describe_condition(condition: cri.RuntimeCondition | None) -> str:
    """Return a condition as messages show it."""
    if condition is None:
        return "<nil>"
    met = "true" if condition.status else "false"
    reason = shorten(condition.reason, LONGEST_WORD)
    return f"{condition.type}={met} reason:{reason} message:{shorten(condition.message)}"


def _complaint(what: str, condition: cri.RuntimeCondition | None) -> str | None:
    is_met = condition is not None and condition.status
    return None if is_met else f"{what}: {describe_condition(condition)}"
