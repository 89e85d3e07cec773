"""How far a pull is, in the few words that fit into a table or a line. Pure."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TypeAlias

from klet.api.klet_v1 import PullEntry
from klet.cli.durations import human_duration

PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""


def pulls_by_pod(pulls: Iterable[PullEntry]) -> Mapping[PodName, PullEntry]:
    """Return the pull that each pod waits for: of several the one that began first."""
    found: dict[PodName, PullEntry] = {}
    for pull in pulls:
        found.setdefault((pull.namespace, pull.pod), pull)
    return found


def brief_pull(pull: PullEntry) -> str:
    """Return it for a column: `pulling 24%, 9s left`."""
    if pull.stage == "unpacking":
        return "unpacking"
    percent = percent_of(pull)
    if percent is None:
        return f"pulling for {human_duration(timedelta(seconds=pull.elapsed_seconds))}"
    if pull.seconds_left is None:
        return f"pulling {percent}%"
    return f"pulling {percent}%, {human_duration(timedelta(seconds=pull.seconds_left))} left"


def percent_of(pull: PullEntry) -> int | None:
    """Return the share that is there, rounded down; None if that is not known."""
    if pull.fetched_bytes is None or not pull.total_bytes:
        return None
    return 100 * pull.fetched_bytes // pull.total_bytes
