"""Whether cost grows faster than the input: an input is made larger by repeating a piece of it.

The cost of Python code is the number of lines that run: other load of the machine does not change it. That of C code
is processor time, the least of several runs. Twice the input costs a linear reader twice as much and a quadratic one
four times; a fault is what costs three times as much twice in a row, and once more when it is measured again.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from types import FrameType
from typing import Any, Final

from klet.testing.fuzz.judge import Overdue, time_limit
from klet.testing.fuzz.target import Limits, Recipe, Run

_MOST_LINES: Final = 2_000_000
_FEW_LINES: Final = 3_000
_ENOUGH_LINES: Final = 50_000
_SMALLEST: Final = 512
_FEW_SECONDS: Final = 0.05
_STEEP: Final = 3.0
_STEPS: Final = 4
_RUNS: Final = 3
_ROUNDS: Final = 3
"""Each has to show it: on a busy machine one of them may not mean much."""


def find_growth(run: Run, recipe: Recipe, limits: Limits) -> str:
    """Return what is wrong with how the cost of the recipe's inputs grows; empty if nothing is."""
    return _lines_fault(run, recipe, limits) or _time_fault(run, recipe, limits) or _memory_fault(run, recipe, limits)


def count_lines(run: Run, data: bytes, *, most: int = _MOST_LINES) -> int:
    """Return how many lines of Python run for an input; raises Overdue beyond the most."""
    count = 0

    def step(_frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal count
        count += 1
        if count > most:
            raise Overdue
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        _run_quietly(run, data)
    finally:
        sys.settrace(before)
    return count


def is_steep(costs: Sequence[float]) -> bool:
    """Return whether the last two doublings made the rise three times as large; each input is twice the one before."""
    rises = [after - before for before, after in pairwise(costs)]
    if len(rises) < _STEPS - 1 or min(rises[-3:]) <= 0:
        return False
    return all(after > _STEEP * before for before, after in pairwise(rises[-3:]))


def _lines_fault(run: Run, recipe: Recipe, limits: Limits) -> str:
    """Begin small and double, as long as that is affordable: some linear readers run a hundred lines for each byte."""
    costs: list[float] = []
    size = _SMALLEST
    try:
        while size <= limits.largest and (len(costs) < _STEPS or costs[-1] < _ENOUGH_LINES):
            costs.append(count_lines(run, recipe.make(size)))
            size *= 2
        if costs[-1] < _FEW_LINES or not is_steep(costs):
            return ""
        costs.append(count_lines(run, recipe.make(size)))
    except Overdue:
        is_dear = len(costs) < _STEPS or is_steep(costs) or is_steep([*costs, _MOST_LINES])
        return f"ran more than {_MOST_LINES} lines for {size} bytes" if is_dear else ""
    return "the lines that run grow faster than the input" if is_steep(costs) else ""


def _time_fault(run: Run, recipe: Recipe, limits: Limits) -> str:
    try:
        if _seconds(run, recipe.make(limits.largest), limits, runs=1) < _FEW_SECONDS:
            return ""
        for _ in range(_ROUNDS):
            costs = [_seconds(run, recipe.make(size), limits) for size in _sizes(limits.largest)]
            if not _is_time_steep(costs):
                return ""
    except Overdue:
        return f"took more than {limits.seconds:g} s of processor time for {limits.largest} bytes"
    return "the processor time grows faster than the input"


def _is_time_steep(costs: Sequence[float]) -> bool:
    return all(after > _STEEP * before for before, after in pairwise(costs[-3:]))


def _memory_fault(run: Run, recipe: Recipe, limits: Limits) -> str:
    data = recipe.make(limits.largest)
    allowed = limits.memory + limits.memory_per_byte * len(data)
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        _run_quietly(run, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not was_tracing:
            tracemalloc.stop()
    if peak - before <= allowed:
        return ""
    return f"took more than {limits.memory >> 20} MiB and {limits.memory_per_byte} bytes for each byte of the input"


def _sizes(largest: int) -> list[int]:
    return [largest >> step for step in reversed(range(_STEPS))]


def _seconds(run: Run, data: bytes, limits: Limits, *, runs: int = _RUNS) -> float:
    return min(_measured(lambda: _run_quietly(run, data), limits) for _ in range(runs))


def _measured(call: Callable[[], None], limits: Limits) -> float:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with time_limit(limits.seconds):
            started = time.process_time()
            call()
            return time.process_time() - started
    finally:
        if was_enabled:
            gc.enable()


def _run_quietly(run: Run, data: bytes) -> None:
    """Run, and ignore the result, which is checked elsewhere (`judge.py`)."""
    with suppress(Exception):
        run(data)
