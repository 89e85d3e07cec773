"""Decisions of the agent as text: one on a line, and the story that they make."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.api.klet_v1 import CauseRecord, Measurement, TimelineStep
from klet.model.reasons import Reason

BESIDE_THE_POINT: Final = frozenset(
    {
        Reason.CREATED,
        Reason.KILL_CONTAINER,
        Reason.MISSING_CLUSTER_DNS,
        Reason.RESTART_CONTAINER,
        Reason.START_CONTAINER,
        Reason.START_INIT_CONTAINER,
    }
)
"""Decisions that `--all` alone shows: their results are records too."""
SAID_TWICE: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
"""Failures to start that the image manager has already recorded."""


class Line(Struct, frozen=True):
    """One line of the folded story."""

    step: TimelineStep
    times: int


def render_story(steps: Sequence[TimelineStep]) -> list[str]:
    """Return every decision, life by life, each indented under the one it follows from."""
    lines: list[str] = []
    life = -1
    for step in steps:
        if step.life != life:
            life = step.life
            lines.append(render_beginning(step))
        lines.append(f"{_offset(step)}  {'  ' * step.depth}{render_record(step, times=step.times)}")
    return lines


def fold_story(steps: Iterable[TimelineStep]) -> list[Line]:
    """Return the newest life in short: without noise, and each thing once, at its last time."""
    every = list(steps)
    newest = [step for step in every if step.life == every[-1].life and not _is_noise(step)]
    times: dict[tuple[str, str, str], int] = {}
    last: dict[tuple[str, str, str], TimelineStep] = {}
    for step in newest:
        key = (step.subject.container, step.decision, step.message)
        times[key] = times.get(key, 0) + step.times
        last.pop(key, None)  # so that it moves to the end
        last[key] = step
    return [Line(step, times[key]) for key, step in last.items()]


def render_folded(line: Line, *, width: int) -> str:
    """Return one line of the folded story, cut to the screen."""
    text = f"{_offset(line.step)}  {render_record(line.step, times=line.times)}"
    return text if len(text) <= width else text[: width - 1] + "…"


def render_beginning(step: TimelineStep) -> str:
    named = f", uid {step.subject.uid}" if step.subject.uid else ""
    return f"from {step.at - timedelta(seconds=step.offset_seconds):%Y-%m-%d %H:%M:%S} UTC{named}"


def render_record(record: CauseRecord, *, times: int = 1) -> str:
    """Return one decision on one line, the same wherever it is shown."""
    about = f"{record.subject.container}: " if record.subject.container else ""
    repeated = f" ({times} times)" if times > 1 else ""
    why = f": {record.message}" if record.message else ""
    numbers = f" [{render_measurements(record.measurements)}]" if record.measurements else ""
    return f"{about}{record.decision}{repeated}{why}{numbers}"


def render_duration(duration: timedelta) -> str:
    """Return a length of time in the two largest units that matter: `12ms`, `3.4s`, `2m05s`, `3h10m`, `2d04h`."""
    milliseconds = max(0, round(duration / timedelta(milliseconds=1)))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f}s"
    minutes, seconds = divmod(milliseconds // 1000, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02}h"


def render_measurements(measurements: Mapping[str, Measurement]) -> str:
    return " ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in measurements.items()
    )


def _offset(step: TimelineStep) -> str:
    return f"+{render_duration(timedelta(seconds=step.offset_seconds)):>7}"


def _is_noise(step: TimelineStep) -> bool:
    if step.decision in BESIDE_THE_POINT:
        return True
    if step.decision == Reason.PULLED:
        return step.measurements.get("alreadyPresent") is True
    return step.decision == Reason.FAILED and step.measurements.get("reason") in SAID_TWICE
