"""Adds how far a pull is to the reason of a container that waits for it. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from klet.journal.container_reasons import IMAGE
from klet.journal.evidence import StateReason
from klet.model.causes import Measurement
from klet.model.pull_progress import PullProgress, PullStage, describe_pull
from klet.model.reasons import Reason

_PULLS: Final = frozenset({Reason.PULLING, Reason.PULL_BEGINS})


def add_progress(reason: StateReason, pulls: Sequence[PullProgress]) -> StateReason:
    """Return the reason with the progress of its pull, if it waits for one that is under way."""
    image = reason.measurements.get(IMAGE)
    if reason.word not in _PULLS or image is None:
        return reason
    # What has no tag is pulled with the default one.
    pull = next((each for each in pulls if each.image in {image, f"{image}:latest"}), None)
    if pull is None:
        return reason
    measured: dict[str, Measurement | None] = {
        "elapsedSeconds": round(pull.elapsed.total_seconds(), 1),
        "stage": str(pull.stage) if pull.stage is not PullStage.UNKNOWN else None,
        "fetchedBytes": pull.fetched,
        "totalBytes": pull.total,
        "bytesPerSecond": round(pull.rate) if pull.rate is not None else None,
        "secondsLeft": round(pull.left.total_seconds(), 1) if pull.left is not None else None,
    }
    known = {name: value for name, value in measured.items() if value is not None}
    return replace(
        reason, message=f"{reason.message}, {describe_pull(pull)}", measurements={**reason.measurements, **known}
    )
