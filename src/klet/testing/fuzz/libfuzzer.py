"""libFuzzer's options, lines and files. Pure."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.testing.fuzz.isolated import Guard
from klet.testing.fuzz.target import Limits

_STATUS: Final = re.compile(r"#(\d+)\t.*?cov: (\d+) .*?corp: (\d+)/")
_EXECUTED: Final = re.compile(r"stat::number_of_executed_units:\s*(\d+)|Done (\d+) ")
_LONGEST_SEED: Final = (1 << 32) - 1
ARTIFACTS: Final = ("crash-", "timeout-", "oom-", "leak-")
_NEVER: Final = 1 << 20
"""Seconds: a slow input is judged by its processor time, and is no file beside the findings."""


class LibfuzzerStatus(Struct, frozen=True):
    """How far a fuzzer is."""

    executions: int = 0
    edges: int = 0
    corpus: int = 0


class LibfuzzerPlan(Struct, frozen=True, kw_only=True):
    """One run: until so many inputs have run or so many seconds are over, whichever comes first."""

    seed: int
    executions: int = 0
    seconds: float = 0.0


def build_options(plan: LibfuzzerPlan, limits: Limits, guard: Guard, artifacts: Path) -> list[str]:
    """Return the options of one run."""
    options = [
        f"-seed={plan.seed % _LONGEST_SEED + 1}",  # 0 is none
        f"-max_len={limits.input_size}",
        f"-timeout={guard.seconds}",
        f"-rss_limit_mb={guard.memory >> 20}",
        f"-artifact_prefix={artifacts}/",
        f"-report_slow_units={_NEVER}",
        "-len_control=0",
        "-reload=0",
        "-print_final_stats=1",
    ]
    if plan.executions:
        options.append(f"-runs={plan.executions}")
    if plan.seconds:
        options.append(f"-max_total_time={max(1, round(plan.seconds))}")
    return options


def read_status(line: str, before: LibfuzzerStatus) -> LibfuzzerStatus:
    """Return what a line of output says of how far it is."""
    if found := _STATUS.match(line):
        executions, edges, corpus = map(int, found.groups())
        return LibfuzzerStatus(executions, edges, corpus)
    if found := _EXECUTED.match(line):
        return LibfuzzerStatus(int(found[1] or found[2]), before.edges, before.corpus)
    return before


def find_artifact(names: Sequence[str]) -> str | None:
    """Return the file with the input that ended the process."""
    return next((name for name in sorted(names) if name.startswith(ARTIFACTS)), None)


def describe_artifact(name: str, guard: Guard) -> str:
    """Return what the process has ended by, for an input that shows nothing alone."""
    match name.partition("-")[0]:
        case "timeout":
            return f"did not end within {guard.seconds} s, after others"
        case "oom":
            return f"took more than {guard.memory >> 20} MiB of memory, after others"
        case _:
            return "ended the process, after others"
