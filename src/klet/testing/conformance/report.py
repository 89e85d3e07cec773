"""What ginkgo wrote about a run: its JSON report, one entry for each spec of the whole suite."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from klet.errors import KletError

FAILED_STATES: Final = frozenset({"failed", "panicked", "timedout", "aborted", "interrupted"})
_NAMESPACE: Final = re.compile(r'namespace "?([a-z0-9][a-z0-9-]{0,62})"? for this suite')
_LONGEST_MESSAGE: Final = 2000


class ReportUnreadable(KletError):
    """There is no report, or it is not one of ginkgo."""


class SpecOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one spec that ran ended."""

    name: str
    passed: bool
    started: datetime
    ended: datetime
    message: str = ""
    """Why it failed."""
    location: str = ""
    """The line of the suite that failed."""
    namespace: str = ""
    """Where it made its objects; empty if it did not say."""


class _Location(msgspec.Struct, rename="pascal"):
    file_name: str = ""
    line_number: int = 0


class _Failure(msgspec.Struct, rename="pascal"):
    message: str = ""
    location: _Location = msgspec.field(default_factory=_Location)


class _Event(msgspec.Struct, rename="pascal"):
    message: str = ""


class _Spec(msgspec.Struct, rename="pascal"):
    container_hierarchy_texts: list[str] | None = None
    leaf_node_type: str = ""
    leaf_node_text: str = ""
    state: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None
    failure: _Failure = msgspec.field(default_factory=_Failure)
    spec_events: list[_Event] | None = None


class _Suite(msgspec.Struct, rename="pascal"):
    spec_reports: list[_Spec] | None = None
    special_suite_failure_reasons: list[str] | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A run."""

    outcomes: tuple[SpecOutcome, ...]
    """Specs that ran, in the order of their names."""
    unusable: tuple[str, ...] = ()
    """Why the run as a whole says nothing: the suite's set-up failed, it was interrupted, it took too long."""


def parse_report(data: bytes) -> Report:
    """Read ginkgo's JSON report; raises ReportUnreadable."""
    try:
        suites = msgspec.json.decode(data, type=list[_Suite])
    except msgspec.MsgspecError as error:
        raise ReportUnreadable(f"ginkgo's report: {error}") from error
    specs = [spec for suite in suites for spec in suite.spec_reports or ()]
    outcomes = [_outcome(spec) for spec in specs if spec.leaf_node_type == "It" and _has_run(spec)]
    return Report(
        outcomes=tuple(sorted(outcomes, key=lambda outcome: outcome.name)), unusable=tuple(_reasons(suites, specs))
    )


def _has_run(spec: _Spec) -> bool:
    return spec.state == "passed" or spec.state in FAILED_STATES


def _reasons(suites: Sequence[_Suite], specs: Sequence[_Spec]) -> list[str]:
    set_up = [
        f"{spec.leaf_node_type}: {_shorten(spec.failure.message)}"
        for spec in specs
        if spec.leaf_node_type != "It" and spec.state in FAILED_STATES
    ]
    special = [reason for suite in suites for reason in suite.special_suite_failure_reasons or ()]
    return [*set_up, *(reason for reason in special if "Interrupt" in reason or "imeout" in reason)]


def _outcome(spec: _Spec) -> SpecOutcome:
    assert spec.start_time is not None
    assert spec.end_time is not None
    location = spec.failure.location
    found = next(filter(None, (_NAMESPACE.search(event.message) for event in spec.spec_events or ())), None)
    return SpecOutcome(
        name=" ".join(filter(None, (*(spec.container_hierarchy_texts or ()), spec.leaf_node_text))),
        passed=spec.state == "passed",
        started=spec.start_time,
        ended=spec.end_time,
        message=_shorten(spec.failure.message),
        location=f"{location.file_name.rpartition('/test/')[2]}:{location.line_number}" if location.file_name else "",
        namespace=found[1] if found else "",
    )


def _shorten(message: str) -> str:
    text = message.strip()
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"
