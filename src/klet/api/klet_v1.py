"""The schema of the agent's own API, `/klet/v1/…`: what the server writes and the command line, pages and Python read.

One struct for each answer, read with `codec.decode`. The reader ignores fields that it does not know, so that an older
command understands a newer agent; a field that is added later gets a default, so that a newer command understands an
older agent. Tests read with `klet.testing.strict`, which allows neither.

An answer holds thousands of records, which refer to nothing that could refer back: `gc=False` spares the collector.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from klet.api.meta import ListMeta
from klet.api.pod import Pod

PODS: Final = "/klet/v1/pods"
JOURNAL: Final = "/klet/v1/journal"
NODE: Final = "/klet/v1/node"
EXPLAIN: Final = "/klet/v1/explain"
PULLS: Final = "/klet/v1/pulls"

Measurement: TypeAlias = str | int | float | bool


class PodListing(Struct, frozen=True, kw_only=True, rename="camel"):
    """`/klet/v1/pods`, and the kubelet's `/pods` and `/runningpods/`: a PodList as Go writes it, without pods null."""

    kind: str = "PodList"
    api_version: str = "v1"
    metadata: ListMeta = ListMeta()
    items: tuple[Pod, ...] | None = None


class CauseSubject(Struct, frozen=True, gc=False):
    """What a record is about: a pod, one of its containers, or (all empty) the node."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    container: str = ""


class CauseRecord(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One line of `/klet/v1/journal`: one decision of the agent."""

    id: str = ""
    parent: str | None = None
    at: datetime
    subject: CauseSubject = CauseSubject()
    decider: str = ""
    decision: str = ""
    message: str = ""
    measurements: Mapping[str, Measurement] = {}
    since: datetime | None = None
    next: str = ""
    next_at: datetime | None = None


class TimelineStep(CauseRecord, frozen=True, kw_only=True, rename="camel", gc=False):
    """A decision, or several equal ones, in the timeline of a pod or of the node."""

    life: int = 0
    """Which of the pods that had the name, or which start of the agent."""
    times: int = 1
    depth: int = 0
    offset_seconds: float = 0.0
    lasted_seconds: float | None = None


class ExplainedPod(Struct, frozen=True):
    """Which pod is explained."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PodState(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pod is, in numbers."""

    phase: str = ""
    ready: bool = False
    containers_ready: int = 0
    containers: int = 0
    restarts: int = 0
    terminating: bool = False
    known: bool = True
    """Whether the agent has the pod; otherwise only the journal remembers it."""


class Why(Struct, frozen=True, kw_only=True, rename="camel"):
    """One reason why a pod or the node is as it is."""

    kind: str = "trouble"
    """`trouble`, `progress` or `past`."""
    reason: str = ""
    container: str = ""
    message: str = ""
    measurements: Mapping[str, Measurement] = {}
    since: datetime | None = None
    next: str = ""
    next_at: datetime | None = None


class WaitingFor(Struct, frozen=True, kw_only=True):
    """The newest decision that announced something which has not come."""

    on: str = ""
    container: str = ""
    message: str = ""
    since: datetime


class Explanation(Struct, frozen=True, kw_only=True, rename="camel"):
    """`/klet/v1/explain/{namespace}/{pod}`: what a pod is, why, and how it came to that."""

    pod: ExplainedPod = ExplainedPod()
    now: datetime
    """The agent's time, which the other instants are to be compared with."""
    state: PodState = PodState()
    summary: str = ""
    why: tuple[Why, ...] = ()
    waiting_for: WaitingFor | None = None
    timeline: tuple[TimelineStep, ...] = ()


class ExplainedNode(Struct, frozen=True):
    """Which node is explained."""

    name: str = ""


class ExplainedCondition(Struct, frozen=True, kw_only=True):
    """One condition of the node, and since when it is so."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


class NodeExplanation(Struct, frozen=True, kw_only=True, rename="camel"):
    """`/klet/v1/node`: what the node is, why, and how it came to that."""

    node: ExplainedNode = ExplainedNode()
    now: datetime
    ready: bool = False
    conditions: tuple[ExplainedCondition, ...] = ()
    summary: str = ""
    why: tuple[Why, ...] = ()
    timeline: tuple[TimelineStep, ...] = ()


class RecordedPod(Struct, frozen=True, kw_only=True):
    """A pod that the journal has records about."""

    namespace: str
    name: str
    last: datetime
    """The instant of the newest record."""


class RecordedPods(Struct, frozen=True, kw_only=True, rename="camel"):
    """`/klet/v1/explain`: every pod that the journal has records about, on the node of this name."""

    node_name: str = ""
    pods: tuple[RecordedPod, ...] = ()


class PullEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One image that is being pulled. What the runtime does not say is null."""

    image: str
    namespace: str = ""
    pod: str = ""
    """The pod that it is for."""
    since: datetime
    elapsed_seconds: float = 0.0
    stage: str = "unknown"
    """`fetching`, `unpacking`, or `unknown`."""
    fetched_bytes: int | None = None
    """How much of it is on the node, also from before."""
    total_bytes: int | None = None
    bytes_per_second: float | None = None
    seconds_left: float | None = None
    summary: str = ""
    """The same in words."""


class PullListing(Struct, frozen=True, kw_only=True):
    """`/klet/v1/pulls`: the images that are being pulled, those that began first before others."""

    now: datetime
    pulls: tuple[PullEntry, ...] = ()


class VersionReport(Struct, frozen=True, kw_only=True):
    """`klet version -o json`."""

    klet: str
    kubernetes: str
    kubelet: str


class PodResult(Struct, frozen=True):
    """How one pod of `klet up` ended up."""

    namespace: str
    name: str
    result: str
    reason: str = ""


class UpReport(Struct, frozen=True, rename="camel"):
    """`klet up -o json`."""

    state_dir: str
    pods: tuple[PodResult, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]


class FileChange(Struct, frozen=True):
    """What `klet install` or `klet uninstall` did with a file."""

    path: str
    action: str
    """`written`, `unchanged`, `moved`, `removed`, `restored` or `kept`."""


class UnitChange(Struct, frozen=True):
    """What `klet install` or `klet uninstall` did with a unit, and how the unit is now."""

    name: str
    action: str
    """`started`, `restarted`, `stopped` or `unchanged`."""
    active: str = ""
    enabled: bool = False


class InstallReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """`klet install -o json` and `klet uninstall -o json`."""

    form: str
    """`node`, or `kubelet` for the agent of a cluster."""
    state_dir: str
    dry_run: bool = False
    changed: bool = False
    """Whether anything was done, or with a dry run, would be."""
    installed: bool = False
    ready: bool = False
    files: tuple[FileChange, ...] = ()
    units: tuple[UnitChange, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def encode(answer: Struct) -> bytes:
    """Write an answer of klet's own as JSON: every field, instants with their offset. Pods have `codec.encode`."""
    return _WIRE.encode(_plain(answer)).encode()


def encode_readable(answer: Struct) -> bytes:
    """Write the same with every character as it is, for people."""
    return _READABLE.encode(_plain(answer)).encode()


def field_names(cls: type[Struct]) -> str:
    """Return the fields of an answer as they are written, for texts of help."""
    return ", ".join(each.encode_name for each in msgspec.structs.fields(cls))


def _plain(answer: Struct) -> object:
    # msgspec by itself would end instants in Z, which readers of v1 have not seen so far.
    return msgspec.to_builtins(answer, builtin_types=(datetime,), enc_hook=_instant)


def _instant(value: object) -> str:
    """Convert what msgspec has no form for: `Time`, which is a datetime and yet not of that very type."""
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"no way to write {type(value).__name__}")


_WIRE: Final = json.JSONEncoder(default=datetime.isoformat)
_READABLE: Final = json.JSONEncoder(default=datetime.isoformat, ensure_ascii=False)
