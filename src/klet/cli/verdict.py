"""Judges a pod that `klet up` waits for: done, broken for good, or still on its way and why."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from klet.api.container_status import ContainerStatus
from klet.api.klet_v1 import Why
from klet.api.pod import Pod


class Done(Struct, frozen=True):
    """The pod is Ready, or has Succeeded."""

    how: str


class Broken(Struct, frozen=True):
    """The pod will never be Ready."""

    reason: str
    is_vague: bool = False
    """Whether the pod failed as a whole: the agent's journal may know more about the cause."""


class Pending(Struct, frozen=True):
    """The pod may still get there; this is what it waits for."""

    reason: str
    is_trouble: bool = False
    """Whether something went wrong, and not only takes its time."""
    is_vague: bool = False
    """Whether the status only says that it is not ready: the cause is in the agent's journal."""


Verdict = Done | Broken | Pending

NOT_THERE = Pending("the agent has not taken it up yet")


def judge_pod(pod: Pod | None) -> Verdict:
    if pod is None:
        return NOT_THERE
    match pod.status.phase:
        case "Succeeded":
            return Done("Succeeded")
        case "Failed":
            return Broken(_failure(pod), is_vague=bool(pod.status.reason))
        case _:
            pass
    if any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions):
        return Done("Ready")
    if _never_restarts(pod) and any(_has_failed(status) for status in pod.status.container_statuses):
        return Broken(_failure(pod))
    troubles = list(_troubles(pod))
    if not troubles:
        return Pending(_not_ready(pod), is_vague=True)
    return Pending("; ".join(troubles), is_trouble=any(_is_trouble(status) for status in _statuses(pod)))


def name_cause(verdict: Pending | Broken, why: Sequence[Why]) -> Pending | Broken:
    """Return the verdict with the cause that `klet explain` names first, if there is one."""
    first = next((one for one in why if one.kind in {"trouble", "progress"}), None)
    if first is None:
        return verdict
    if isinstance(verdict, Broken):
        return Broken(_words(first.reason, first.message))
    return Pending(_words(first.reason, first.message), is_trouble=first.kind == "trouble")


def _failure(pod: Pod) -> str:
    own = _words(pod.status.reason, pod.status.message)
    return "; ".join([*([own] if own else []), *_troubles(pod)]) or "it failed, and the status does not say why"


def _not_ready(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.status != "True" and (text := _words(condition.reason, condition.message)):
            return f"{condition.type} is {condition.status}: {text}"
    return "its containers are being prepared"


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def _never_restarts(pod: Pod) -> bool:
    return pod.spec.restart_policy == "Never" and not any(one.restart_policy for one in pod.spec.containers)


def _has_failed(status: ContainerStatus) -> bool:
    return status.state.terminated is not None and status.state.terminated.exit_code != 0


def _is_trouble(status: ContainerStatus) -> bool:
    """Return whether the container failed or cannot start; one that runs and is not ready yet only takes its time."""
    return status.state.running is None and bool(_trouble(status))


def _troubles(pod: Pod) -> Iterator[str]:
    for kind, statuses in (
        ("init container", pod.status.init_container_statuses),
        ("container", pod.status.container_statuses),
    ):
        for status in statuses:
            trouble = _trouble(status)
            if trouble:
                yield f'{kind} "{status.name}" {trouble}'


def _trouble(status: ContainerStatus) -> str:
    state = status.state
    if state.terminated is not None:
        return "" if state.terminated.exit_code == 0 else _ended(status, "ended")
    if state.waiting is not None:
        # Waiting for its turn is no trouble of its own.
        if state.waiting.reason in {"", "ContainerCreating", "PodInitializing"} and not state.waiting.message:
            return ""
        last = status.last_state.terminated
        if state.waiting.reason == "CrashLoopBackOff" and last is not None:
            # The message only counts the seconds, and is another one each time.
            return f"waits: {state.waiting.reason}; last time it {_ended(status, 'ended', last=True)}"
        waiting = f"waits: {_words(state.waiting.reason, state.waiting.message)}"
        return f"{waiting}; last time it {_ended(status, 'ended', last=True)}" if last is not None else waiting
    if state.running is not None and not status.ready:
        return "runs and is not ready yet" + (
            f", after {status.restart_count} restarts" if status.restart_count else ""
        )
    return ""


def _ended(status: ContainerStatus, verb: str, *, last: bool = False) -> str:
    ended = (status.last_state if last else status.state).terminated
    if ended is None:
        return verb
    how = f"by signal {ended.signal}" if ended.signal else f"with exit code {ended.exit_code}"
    text = _words(ended.reason if ended.reason != "Error" else "", ended.message.strip())
    return f"{verb} {how}" + (f" ({text})" if text else "")


def _words(reason: str, message: str) -> str:
    return ": ".join(word for word in (reason, message) if word)
