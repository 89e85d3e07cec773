"""What a kill for memory means: whose process it was, which limit was reached, and the words for it. Pure."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from klet.api.quantity import Format, Quantity
from klet.host.kmsg import OomKill
from klet.host.oom_counts import CONTAINER_ID
from klet.model.causes import FindingSubject, Measurement
from klet.model.foreign_text import as_terminal_text, shorten
from klet.model.pods import PodUID
from klet.model.runtime import PodRuntimeStatus

LONGEST_PROCESS: Final = 64
SYSTEM_TEXT: Final = "System OOM encountered"


class Owner(Struct, frozen=True):
    """A container that processes were killed in; its id is empty if only the pod is known."""

    subject: FindingSubject
    container_id: str = ""


def describe_system(kill: OomKill) -> str:
    """Return upstream's text of the Event on the Node."""
    process = show_process(kill.process)
    return f"{SYSTEM_TEXT}, victim process: {process}, pid: {kill.pid}" if process and kill.pid else SYSTEM_TEXT


def find_owner(cgroup: str, pods: Mapping[PodUID, PodRuntimeStatus]) -> Owner | None:
    """Return whose cgroup this is, by the ids in its path: of a container, else of a pod."""
    ids = frozenset(CONTAINER_ID.findall(cgroup))
    for uid, pod in pods.items():
        for record in pod.containers:
            if record.id in ids:
                return Owner(FindingSubject(pod.namespace, pod.name, uid, record.name), record.id)
        if has_pod(cgroup, uid) or any(sandbox.id in ids for sandbox in pod.sandboxes):
            return Owner(FindingSubject(pod.namespace, pod.name, uid))
    return None


def has_pod(cgroup: str, uid: str) -> bool:
    """Return whether a path leads through the cgroup of a pod; systemd has no dashes in names."""
    parts = cgroup.split("/")
    return any(part == f"pod{uid}" or part.endswith(f"-pod{uid.replace('-', '_')}.slice") for part in parts)


def describe_kill(kill: OomKill | None, owner: Owner, *, kills: int) -> str:
    """Return the text of the Event on the pod: the process, the limit, and how many were killed since the last one."""
    container = f'container "{owner.subject.container}"' if owner.subject.container else "the pod"
    if kill is None:
        many = "a process" if kills == 1 else f"{kills} processes"
        return f"Out of memory: the kernel killed {many} of {container}"
    more = "" if kills <= 1 else f"; {kills - 1} more killed"
    process = f"process {kill.pid} ({show_process(kill.process)})"
    return f"{_name_cause(kill)}: the kernel killed {process} of {container}, {_name_limit(kill, owner)}{more}"


def measure_kill(kill: OomKill | None, *, kills: int) -> dict[str, Measurement]:
    measured: dict[str, Measurement] = {"kills": kills}
    if kill is not None:
        measured |= {"process": show_process(kill.process), "pid": kill.pid}
        if kill.uid is not None:
            measured["uid"] = kill.uid
        if kill.limit is not None and not kill.is_system:
            measured["limit"] = kill.limit
        if kill.constraint:
            measured["constraint"] = shorten(kill.constraint, LONGEST_PROCESS)
    return measured


def show_process(name: str) -> str:
    """Return the name of a process, which the process itself chooses."""
    return shorten(as_terminal_text(name), LONGEST_PROCESS)


def _name_cause(kill: OomKill) -> str:
    return "Node out of memory" if kill.is_system else "Memory cgroup out of memory"


def _name_limit(kill: OomKill, owner: Owner) -> str:
    if kill.is_system:
        return "as the whole node was out of memory"
    limit = f" of {Quantity.of(kill.limit, Format.BINARY_SI)}" if kill.limit is not None else ""
    if owner.container_id and owner.container_id in kill.memcg:
        return f"which reached its memory limit{limit}"
    last = kill.memcg.rpartition("/")[2]
    if has_pod(last, owner.subject.uid):
        return f"as the pod reached its memory limit{limit}"
    if not kill.memcg:
        return "which reached a memory limit"
    return f"as the cgroup {shorten(as_terminal_text(kill.memcg))} reached its memory limit{limit}"
