"""The daemons of a node as data: the file that says what shall run, and what to do when it changes."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from klet.host.files import write_atomic

FIRST_DELAY = timedelta(milliseconds=200)
LONGEST_DELAY = timedelta(seconds=30)
STEADY = timedelta(seconds=60)
"""A daemon that lived this long did not fail to start; its next failure begins with a short delay again."""


class NodeService(msgspec.Struct, frozen=True, kw_only=True):
    """One daemon."""

    name: str
    argv: tuple[str, ...]
    log: str
    revision: str = ""
    """Changes when the daemon has to be restarted although its command is the same: a hash of its configuration."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


class NodeServiceList(msgspec.Struct, frozen=True, kw_only=True):
    """What shall run, in starting order; stopping goes the other way."""

    services: tuple[NodeService, ...] = ()


class ServicePlan(Struct, frozen=True):
    """How to get from what runs to what shall run."""

    stop: tuple[str, ...]
    start: tuple[NodeService, ...]


def plan_services(running: Mapping[str, str], wanted: Sequence[NodeService]) -> ServicePlan:
    """Compare what runs (digests by name, in starting order) with what shall run."""
    digests = {service.name: service.digest for service in wanted}
    stop = tuple(name for name, digest in reversed(list(running.items())) if digests.get(name) != digest)
    start = tuple(service for service in wanted if running.get(service.name) != service.digest)
    return ServicePlan(stop=stop, start=start)


def restart_delay(previous: timedelta, *, lived: timedelta) -> timedelta:
    """Return how long to wait before a daemon that ended is started again."""
    if lived >= STEADY or not previous:
        return FIRST_DELAY
    return min(previous * 2, LONGEST_DELAY)


def read_services(path: Path) -> tuple[NodeService, ...]:
    return msgspec.json.decode(path.read_bytes(), type=NodeServiceList).services


def write_services(path: Path, services: Sequence[NodeService]) -> None:
    write_atomic(path, msgspec.json.encode(NodeServiceList(services=tuple(services))), mode=0o600)
