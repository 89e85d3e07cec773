"""One row per pod, with the words that `kubectl get pods` uses, in aligned columns as kubectl prints them."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from klet.api.container_status import ContainerState, ContainerStatus
from klet.api.klet_v1 import PullEntry
from klet.api.pod import Pod
from klet.api.pod_annotations import SEEN_ANNOTATION
from klet.api.times import Time, TimeError
from klet.cli.durations import age, human_duration
from klet.cli.pull_words import brief_pull

NONE = "<none>"
GAP = 3


class PodRow(Struct, frozen=True, kw_only=True):
    """What the table shows of one pod."""

    namespace: str
    name: str
    ready: str
    status: str
    restarts: str
    ip: str
    age: str
    node: str
    containers: str
    images: str


def build_row(pod: Pod, *, now: datetime, pull: PullEntry | None = None) -> PodRow:
    """Return the row; `pull` is what the pod waits for."""
    sidecars = _sidecars(pod)
    # A sidecar counts once it is ready; an init container that runs once never does.
    ready = sum(status.ready for status in pod.status.container_statuses) + sum(
        status.ready for status in pod.status.init_container_statuses if status.name in sidecars
    )
    total = len(pod.spec.containers) + len(sidecars)
    word = pod_status_word(pod)
    return PodRow(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        ready=f"{ready}/{total}",
        status=word if pull is None or word == "Terminating" else f"{word} ({brief_pull(pull)})",
        restarts=_restarts(pod, now=now),
        ip=pod.status.pod_ip or NONE,
        age=age(_born(pod), now=now),
        node=pod.spec.node_name or NONE,
        containers=",".join(container.name for container in pod.spec.containers),
        images=",".join(container.image for container in pod.spec.containers),
    )


def _born(pod: Pod) -> datetime | None:
    """Return the creation time; a static pod has none, and is as old as its first sync or the agent's notice."""
    known = pod.metadata.creation_timestamp or pod.status.start_time
    if known is not None:
        return known
    try:
        return Time.parse(pod.metadata.annotations.get(SEEN_ANNOTATION, ""))
    except TimeError:
        return None


def pod_status_word(pod: Pod) -> str:
    """Return the STATUS column: the phase, or the more precise state of a container."""
    if pod.metadata.deletion_timestamp is not None and pod.status.phase not in {"Succeeded", "Failed"}:
        return "Unknown" if pod.status.reason == "NodeLost" else "Terminating"
    word = pod.status.reason or pod.status.phase or "Unknown"
    initializing = _initializing(pod)
    if initializing is not None and not _condition(pod, "Initialized"):
        return initializing
    # The first container has the last word, as kubectl has it.
    for status in reversed(pod.status.container_statuses):
        word = _container_word(status.state) or word
    if word == "Completed" and any(status.ready and status.state.running for status in pod.status.container_statuses):
        return "Running" if _condition(pod, "Ready") else "NotReady"
    return word


def _initializing(pod: Pod) -> str | None:
    sidecars = _sidecars(pod)
    for index, status in enumerate(pod.status.init_container_statuses):
        state = status.state
        if state.terminated is not None and state.terminated.exit_code == 0:
            continue
        if status.name in sidecars and status.started:
            continue
        if state.terminated is not None or (state.waiting is not None and state.waiting.reason != "PodInitializing"):
            word = _container_word(state)
            if word:
                return f"Init:{word}"
        return f"Init:{index}/{len(pod.spec.init_containers)}"
    return None


def _container_word(state: ContainerState) -> str:
    if state.waiting is not None:
        return state.waiting.reason
    if state.terminated is None:
        return ""
    if state.terminated.reason:
        return state.terminated.reason
    if state.terminated.signal:
        return f"Signal:{state.terminated.signal}"
    return f"ExitCode:{state.terminated.exit_code}"


def _restarts(pod: Pod, *, now: datetime) -> str:
    counted: list[ContainerStatus] = list(pod.status.container_statuses)
    sidecars = _sidecars(pod)
    if _initializing(pod) is not None and not _condition(pod, "Initialized"):
        counted = list(pod.status.init_container_statuses)
    else:
        counted += [status for status in pod.status.init_container_statuses if status.name in sidecars]
    count = sum(status.restart_count for status in counted)
    ends = [
        status.last_state.terminated.finished_at
        for status in counted
        if status.last_state.terminated is not None and status.last_state.terminated.finished_at is not None
    ]
    return f"{count} ({human_duration(now - max(ends))} ago)" if count and ends else str(count)


def _sidecars(pod: Pod) -> frozenset[str]:
    return frozenset(container.name for container in pod.spec.init_containers if container.restart_policy == "Always")


def _condition(pod: Pod, kind: str) -> bool:
    return any(condition.type == kind and condition.status == "True" for condition in pod.status.conditions)


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, *rows]
    return render_lines(lines, column_widths(lines))


def column_widths(lines: Sequence[Sequence[str]], *, at_least: Sequence[int] = ()) -> list[int]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [max(pair) for pair in zip(widths, at_least, strict=True)] if at_least else widths


def render_lines(lines: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    # The last column is not padded: trailing blanks are of no use.
    return "".join(
        "".join(f"{cell:<{width + GAP}}" for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def pod_columns(row: PodRow, *, is_wide: bool) -> list[str]:
    columns = [row.namespace, row.name, row.ready, row.status, row.restarts, row.ip, row.age]
    return [*columns, row.node, row.containers, row.images] if is_wide else columns


def pod_header(*, is_wide: bool) -> list[str]:
    columns = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "IP", "AGE"]
    return [*columns, "NODE", "CONTAINERS", "IMAGES"] if is_wide else columns
