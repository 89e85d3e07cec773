"""Questions for a container's log: reading the query, and choosing the container instance that is meant. Pure."""

import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from klet.api.container_status import ContainerStatus
from klet.api.pod import Pod
from klet.api.times import Time, TimeError
from klet.model.log_query import LogQuery, LogStream
from klet.model.runtime import ContainerId


class LogRefusal(Struct, frozen=True):
    """Why there is no log to show: an HTTP status and its body."""

    status: int
    body: str


_STREAMS = {str(stream): stream for stream in LogStream}
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNDECODABLE = LogRefusal(400, '{"message": "Unable to decode query."}')
_INVALID = LogRefusal(422, '{"message": "Invalid request."}')


def parse_log_query(query: Mapping[str, str]) -> LogQuery | LogRefusal:
    """Read the options that upstream knows; the legacy `tail` wins over `tailLines`."""
    try:
        tail = _number(query, "tail" if query.get("tail") else "tailLines") if query.get("tail") != "all" else None
        parsed = LogQuery(
            follow=_flag(query, "follow"),
            previous=_flag(query, "previous"),
            timestamps=_flag(query, "timestamps"),
            since_seconds=_number(query, "sinceSeconds"),
            since_time=Time.parse(query["sinceTime"]) if query.get("sinceTime") else None,
            tail_lines=tail,
            limit_bytes=_number(query, "limitBytes"),
        )
    except (ValueError, TimeError):
        return _UNDECODABLE
    stream = _STREAMS.get(query.get("stream", LogStream.ALL))
    if stream is None or not _is_valid(parsed) or (stream is not LogStream.ALL and parsed.tail_lines is not None):
        return _INVALID
    return replace(parsed, stream=stream)


def refuse_stream(query: LogQuery, *, splits_streams: bool) -> LogRefusal | None:
    """Return the answer to a client that wants one of the streams, with the gate PodLogsQuerySplitStreams off."""
    if splits_streams or query.stream is LogStream.ALL:
        return None
    body = (
        f'unable to return the given log stream: "{query.stream}". '
        "Please enable PodLogsQuerySplitStreams feature gate in kubelet"
    )
    return LogRefusal(400, body)


def _flag(query: Mapping[str, str], name: str) -> bool:
    return name in query and query[name] not in {"false", "0"}


def _number(query: Mapping[str, str], name: str) -> int | None:
    """Return a number as Go reads it: digits and a sign, within 64 bits."""
    text = query.get(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError(text)
    return int(text)


def _is_valid(query: LogQuery) -> bool:
    if query.since_seconds is not None and query.since_time is not None:
        return False
    at_least = ((query.since_seconds, 1), (query.limit_bytes, 1), (query.tail_lines, 0))
    return all(value is None or value >= least for value, least in at_least)


def choose_instance(pod: Pod, container: str, *, previous: bool) -> ContainerId | LogRefusal:
    """Find the instance of a container whose log is meant, by the pod's status."""
    if not has_container(pod, container):
        return LogRefusal(404, f'container "{container}" not found in pod "{pod.metadata.name}"')
    where = f'container "{container}" in pod "{pod.metadata.name}"'
    status = _status_of(pod, container)
    if status is None:
        return LogRefusal(400, f"{where} is not available")
    last = status.last_state.terminated
    last_id = _instance(last.container_id) if last is not None else None
    if previous:
        return last_id or LogRefusal(400, f"previous terminated {where} not found")
    if status.state.running is not None:
        return _instance(status.container_id) or LogRefusal(400, f"{where} is not available")
    if status.state.terminated is not None:
        own = _instance(status.state.terminated.container_id)
        return own or last_id or LogRefusal(400, f"{where} is terminated")
    if status.state.waiting is None:
        return LogRefusal(400, f"{where} is waiting to start - no logs yet")
    if last is not None:
        return last_id or LogRefusal(400, f"{where} is terminated")
    words = {"ErrImagePull": "image can't be pulled", "ImagePullBackOff": "trying and failing to pull image"}
    reason = status.state.waiting.reason
    return LogRefusal(400, f"{where} is waiting to start: {words.get(reason, reason)}")


def has_container(pod: Pod, name: str) -> bool:
    """Return whether the pod's spec has a container of any kind with this name."""
    names = {spec.name for spec in (*pod.spec.containers, *pod.spec.init_containers)}
    return name in names | {spec.name for spec in pod.spec.ephemeral_containers}


def _status_of(pod: Pod, container: str) -> ContainerStatus | None:
    status = pod.status
    every = (
        *status.container_statuses,
        *status.init_container_statuses,
        *status.ephemeral_container_statuses,
    )
    return next((found for found in every if found.name == container), None)


def _instance(container_id: str) -> ContainerId | None:
    return ContainerId(container_id.partition("://")[2]) if container_id else None
