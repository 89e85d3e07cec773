"""What one or more runs say together, and how that differs from a recorded run of upstream's kubelet."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from klet.errors import KletError
from klet.testing.conformance.report import Report, SpecOutcome


class RecordUnreadable(KletError):
    """A file that should hold results does not."""


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names of specs by how they ended. One that failed in any run is failed, and flaky too if it passed in another."""

    release: str
    kubelet: str
    date: str
    runs: int
    seconds: int
    focus: tuple[str, ...]
    skip: tuple[str, ...]
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    flaky: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Against a recorded run: of the specs that both ran."""

    only_upstream_passes: tuple[str, ...]
    only_this_passes: tuple[str, ...]
    both_fail: tuple[str, ...]
    unknown: tuple[str, ...]
    """They ran here; the recorded run does not have them."""


def merge_reports(
    reports: Sequence[Report],
    *,
    release: str,
    kubelet: str,
    date: str,
    seconds: int,
    focus: tuple[str, ...],
    skip: tuple[str, ...],
) -> Result:
    """Merge all runs into one."""
    passed = {outcome.name for report in reports for outcome in report.outcomes if outcome.passed}
    failed = {outcome.name for report in reports for outcome in report.outcomes if not outcome.passed}
    return Result(
        release=release,
        kubelet=kubelet,
        date=date,
        runs=len(reports),
        seconds=seconds,
        focus=focus,
        skip=skip,
        passed=_sorted(passed - failed),
        failed=_sorted(failed),
        flaky=_sorted(passed & failed),
    )


def diff_results(result: Result, upstream: Result) -> Difference:
    passed, failed = set(result.passed), set(result.failed)
    return Difference(
        only_upstream_passes=_sorted(failed & set(upstream.passed)),
        only_this_passes=_sorted(passed & set(upstream.failed)),
        both_fail=_sorted(failed & set(upstream.failed)),
        unknown=_sorted((passed | failed) - set(upstream.passed) - set(upstream.failed)),
    )


def join_records(own: Result | None, others: Iterable[Result]) -> Result | None:
    """Return one yardstick from the records of several sets; a spec that several have ended as in the first."""
    joined = own
    for other in others:
        if joined is None:
            joined = other
            continue
        known = {*joined.passed, *joined.failed}
        joined = msgspec.structs.replace(
            joined,
            passed=_sorted({*joined.passed, *(name for name in other.passed if name not in known)}),
            failed=_sorted({*joined.failed, *(name for name in other.failed if name not in known)}),
        )
    return joined


def last_failures(reports: Iterable[Report]) -> Mapping[str, SpecOutcome]:
    """Return the newest failure of each spec that failed."""
    return {outcome.name: outcome for report in reports for outcome in report.outcomes if not outcome.passed}


def is_success(result: Result, difference: Difference | None) -> bool:
    """Return whether nothing failed, or nothing but what fails with upstream's kubelet too."""
    if difference is None:
        return not result.failed
    return set(result.failed) == set(difference.both_fail)


def render_result(result: Result, difference: Difference | None, failures: Mapping[str, SpecOutcome]) -> str:
    """Return a few lines for people; why a spec failed stands below its name."""
    ran = len(result.passed) + len(result.failed)
    times = f", {result.runs} runs" if result.runs > 1 else ""
    head = f"{result.kubelet}, Kubernetes {result.release}"
    lines = [f"{head}: {len(result.passed)} of {ran} passed in {result.seconds} s{times}"]
    lines += _section("failed", [_with_reason(name, failures) for name in result.failed])
    lines += _section("passed in one run and failed in another", result.flaky)
    if difference is None:
        return "\n".join([*lines, "no recorded run of upstream's kubelet to compare with", ""])
    lines += _section("passes with upstream's kubelet, not here", difference.only_upstream_passes)
    lines += _section("passes here, not with upstream's kubelet", difference.only_this_passes)
    lines += _section("fails with both", difference.both_fail)
    lines += _section("not in the recorded run", difference.unknown)
    if not difference.only_upstream_passes and not difference.unknown:
        lines.append("nothing that passes with upstream's kubelet fails here")
    return "\n".join([*lines, ""])


def write_result(path: Path, result: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def read_result(path: Path) -> Result | None:
    """Return the results in a file; None if there is no such file. Raises RecordUnreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise RecordUnreadable(f"{path}: {error}") from error


def _with_reason(name: str, failures: Mapping[str, SpecOutcome]) -> str:
    if name not in failures:
        return name
    outcome = failures[name]
    message = outcome.message.partition("\n")[0]
    return f"{name}\n    {': '.join(filter(None, (outcome.location, message)))}"


def _section(title: str, names: Sequence[str]) -> list[str]:
    return [f"{title}: {len(names)}", *(f"  {name}" for name in names)] if names else []


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
