"""docs/conformance.md, made from the recorded runs: what klet passes, and what only upstream's kubelet passes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from klet.testing.conformance.results import RecordUnreadable, Result, diff_results, read_result

DOCUMENT: Final = Path("docs/conformance.md")
REASONS: Final = "reasons.json"
_HEAD: Final = """\
# Conformance

Upstream's own end-to-end suite, with klet and with upstream's kubelet as the node of the same control plane on the same
machine. `scripts/conformance` builds the suite and its images, runs it and compares; `scripts/conformance --record`
writes this page, from the records in `tests/data/conformance/`. Nobody edits it by hand.

The default set is `[NodeConformance]` without specs that are Serial, Disruptive, Slow, Flaky, Alpha or of an optional
Feature. Images come from no registry: agnhost is upstream's program on a busybox of Debian with bash, curl and nc.
"""


def write_document(root: Path, records: Path) -> Path:
    """Write the page below the root of the repository, from a directory of records."""
    made = render_document(
        klet=read_result(records / "klet.json"),
        upstream=read_result(records / "upstream.json"),
        reasons=read_reasons(records / REASONS),
    )
    path = root / DOCUMENT
    path.write_text(made)
    return path


def read_reasons(path: Path) -> Mapping[str, str]:
    """Why a spec fails, by its name; raises RecordUnreadable."""
    try:
        return {str(name): str(reason) for name, reason in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise RecordUnreadable(f"{path}: {error}") from error


def render_document(*, klet: Result | None, upstream: Result | None, reasons: Mapping[str, str]) -> str:
    """The whole page."""
    rows = [_row(result) for result in (klet, upstream) if result is not None]
    table = ["| node | release | date | passed | of | time |", "| --- | --- | --- | --- | --- | --- |", *rows]
    parts = [_HEAD, "\n".join(table)]
    if klet is not None and upstream is not None:
        difference = diff_results(klet, upstream)
        parts += [
            _list("Only upstream's kubelet passes", difference.only_upstream_passes, reasons),
            _list("Only klet passes", difference.only_this_passes, reasons),
            _list("Both fail", difference.both_fail, reasons),
        ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _row(result: Result) -> str:
    ran = len(result.passed) + len(result.failed)
    name = "klet" if result.kubelet == "klet" else "upstream's kubelet"
    return f"| {name} | {result.release} | {result.date} | {len(result.passed)} | {ran} | {result.seconds} s |"


def _list(title: str, names: Sequence[str], reasons: Mapping[str, str]) -> str:
    lines = [f"- `{name}`: {reasons.get(name, 'no reason is known')}" for name in names]
    return "\n".join([f"## {title}", "", *(lines or ["None."])])
