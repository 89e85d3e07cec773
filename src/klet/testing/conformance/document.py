"""docs/conformance.md, made from the recorded runs: what klet passes, and what only upstream's kubelet passes."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.testing.conformance.results import RecordUnreadable, Result, diff_results, read_result
from klet.testing.conformance.spec_sets import RECORDED, AwaitedFeature, SpecSet

DOCUMENT: Final = Path("docs/conformance.md")
REASONS: Final = "reasons.json"
NO_REASON: Final = "no reason is known"
_HEAD: Final = """\
# Conformance

For users and contributors: the results of upstream's own end-to-end suite, with klet and with upstream's kubelet as
the node, on the same control plane and machine. `scripts/conformance` builds the suite and its images, runs it and
compares; `scripts/conformance --record` writes this page from the records in `tests/data/conformance/`. Do not edit it
by hand.

The images are built without a registry: agnhost is upstream's program on busybox, with bash and curl. Specs of a
feature that klet does not have yet are listed under the issue that tracks the feature; klet runs few of these, because
each fails only after minutes. The column "of" counts the specs that ran: where klet passes all of them, there may be
others that it did not run.
"""
_TABLE: Final = "| set | node | release | date | passed | of | time |\n| --- | --- | --- | --- | --- | --- | --- |"
_DRIVERS: Final = (
    "Not run with either: specs that match `{pattern}`. They deploy programs of github.com/kubernetes-csi, which the "
    "Go module registry of that machine does not have."
)


class Runs(Struct, frozen=True):
    """What is recorded of a set."""

    spec_set: SpecSet
    klet: Result | None
    upstream: Result | None

    @property
    def known(self) -> list[Result]:
        return [result for result in (self.klet, self.upstream) if result is not None]


def write_document(root: Path, records: Path) -> Path:
    """Write the page below the root of the repository, from a directory of records."""
    runs = [Runs(spec_set, *(_read(records, spec_set, name) for name in ("klet", "upstream"))) for spec_set in RECORDED]
    path = root / DOCUMENT
    path.write_text(render_document(runs, read_reasons(records / REASONS)))
    return path


def read_reasons(path: Path) -> Mapping[str, str]:
    """Read why specs fail: by a name, or by an expression (^…) that fits several. Raises RecordUnreadable."""
    try:
        return {str(name): str(reason) for name, reason in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise RecordUnreadable(f"{path}: {error}") from error


def find_reason(name: str, reasons: Mapping[str, str]) -> str:
    if name in reasons:
        return reasons[name]
    fitting = (reason for key, reason in reasons.items() if key.startswith("^") and re.search(key, name))
    return next(fitting, NO_REASON)


def render_document(recorded: Sequence[Runs], reasons: Mapping[str, str]) -> str:
    """Return the whole page."""
    rows = [_row(runs.spec_set, result) for runs in recorded for result in runs.known]
    sections = [_section(runs, reasons) for runs in recorded if runs.known]
    return "\n\n".join([_HEAD.rstrip("\n"), "\n".join([_TABLE, *rows]), *sections]) + "\n"


def _row(spec_set: SpecSet, result: Result) -> str:
    ran = len(result.passed) + len(result.failed)
    name = "klet" if result.kubelet == "klet" else "upstream's kubelet"
    times = f"{result.seconds} s" if result.runs == 1 else f"{result.seconds} s, {result.runs} runs"
    return f"| {spec_set.name} | {name} | {result.release} | {result.date} | {len(result.passed)} | {ran} | {times} |"


def _read(records: Path, spec_set: SpecSet, kubelet: str) -> Result | None:
    return read_result(records / spec_set.name / f"{kubelet}.json")


def _section(runs: Runs, reasons: Mapping[str, str]) -> str:
    spec_set, klet, upstream = runs.spec_set, runs.klet, runs.upstream
    parts = [f"## {spec_set.name}", f"`--set {spec_set.name}`: {spec_set.title}."]
    if klet is not None and upstream is not None:
        difference = diff_results(klet, upstream)
        missing = sorted(set(upstream.passed) - set(klet.passed))
        parts += [
            _list("Only upstream's kubelet passes", missing, reasons, spec_set),
            _list("Only klet passes", difference.only_this_passes, reasons),
            _list("Both fail", difference.both_fail, reasons),
        ]
        others = sorted(set(upstream.failed) - set(klet.passed) - set(klet.failed))
        if others:
            parts.append(_list("Upstream's kubelet fails, and klet does not run", others, reasons))
    if upstream is not None and spec_set.drivers and spec_set.drivers in upstream.skip:
        parts.append(_DRIVERS.format(pattern=spec_set.drivers))
    return "\n\n".join(parts)


def _list(title: str, names: Sequence[str], reasons: Mapping[str, str], spec_set: SpecSet | None = None) -> str:
    """List names with their reasons; those that wait for the same issue are grouped."""
    awaited = {name: found for name in names if spec_set and (found := spec_set.find_awaited(name))}
    lines = [f"- `{name}`: {find_reason(name, reasons)}" for name in names if name not in awaited]
    for what, group in groupby(sorted(awaited, key=lambda name: (str(awaited[name]), name)), awaited.__getitem__):
        lines += _await(what, list(group))
    return "\n".join([f"### {title}", "", *(lines or ["None."])])


def _await(awaited: AwaitedFeature, names: Sequence[str]) -> list[str]:
    return [f"- {awaited}: {len(names)} specs", *(f"  - `{name}`" for name in names)]
