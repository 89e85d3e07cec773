"""`klet explain`: why a pod is as it is, and what happened to it; also of pods that are gone, and of the node.

The first screen says what the pod is, why, what comes next and when; below it stands what happened.
"""

import shutil
import sys
import textwrap
from datetime import datetime, timedelta
from typing import Final

from klet.api.klet_v1 import ExplainedCondition, Explanation, NodeExplanation, PodState, Why, encode_readable
from klet.cli.client import AgentClient, AgentError
from klet.cli.durations import human_duration
from klet.cli.json_text import as_json_text
from klet.cli.names import PodName, UnclearName, choose_name, is_node, parse_reference, pod_names, recorded_names
from klet.cli.timeline import fold_story, render_beginning, render_folded, render_story
from klet.model.foreign_text import as_terminal_text

LABELS: Final = {"trouble": "Why", "progress": "Now", "past": "Before"}
MOST_REASONS: Final = 3
"""With their times they fit on a screen of 24 lines, and the first of them nearly always says it all."""
LONGEST_MESSAGE: Final = 4
"""Lines of one reason; the rest is in -o json."""
_INDENT: Final = 8
NARROWEST: Final = 40
WIDEST: Final = 120
NOT_FOUND: Final = 404


def print_explanation(
    client: AgentClient, text: str, *, namespace: str | None, as_json: bool, is_whole: bool = False
) -> None:
    if is_node(text):
        _print_node(client, text, as_json=as_json, is_whole=is_whole)
        return
    reference = parse_reference(text, namespace=namespace)

    def remembered() -> frozenset[PodName]:
        recorded = client.recorded_pods()
        return recorded_names(recorded.pods, node_name=recorded.node_name)

    explanation = _explain(client, choose_name(reference, pod_names(client.all_pods()), remembered))
    if as_json:
        _show(as_json_text(encode_readable(explanation)))
    else:
        _show(render_explanation(explanation, width=_width(), is_whole=is_whole))


def _print_node(client: AgentClient, text: str, *, as_json: bool, is_whole: bool) -> None:
    explanation = client.explain_node()
    name = text.partition("/")[2]
    if name not in {"", explanation.node.name}:
        raise UnclearName(
            f"this agent's node is {explanation.node.name!r}, not {name!r}; of a pod in the namespace 'node' ask with "
            f"pod/node/{name}"
        )
    if as_json:
        _show(as_json_text(encode_readable(explanation)))
    else:
        _show(render_node(explanation, width=_width(), is_whole=is_whole))


def _show(text: str) -> None:
    sys.stdout.write(as_terminal_text(text))
    sys.stdout.flush()  # here, where a reader that went away is dealt with


def _width() -> int:
    return min(WIDEST, max(NARROWEST, shutil.get_terminal_size(fallback=(80, 24)).columns))


def _explain(client: AgentClient, name: PodName) -> Explanation:
    try:
        return client.explain(name.namespace, name.name)
    except AgentError as error:
        if error.status != NOT_FOUND:
            raise
        # It has just gone, with all that was recorded about it.
        raise AgentError(error.status, f"{error}; `klet ps` lists the pods that are there") from error


def render_explanation(explanation: Explanation, *, width: int, is_whole: bool) -> str:
    pod = explanation.pod
    state = _render_state(explanation.state)
    head = _wrap(f"{pod.namespace}/{pod.name}: {state}", "", width=width)
    story = _render_timeline(explanation, width=width, is_whole=is_whole)
    return "\n".join([*head, "", *_render_reasons(explanation, width=width), "", *story]).rstrip() + "\n"


def render_node(explanation: NodeExplanation, *, width: int, is_whole: bool) -> str:
    """Return the same of the node, with its conditions before what happened."""
    head = f"node/{explanation.node.name}: {'ready' if explanation.ready else 'not ready'}"
    conditions = [
        line
        for condition in explanation.conditions
        for line in _render_condition(condition, now=explanation.now, width=width)
    ]
    story = _render_timeline(explanation, width=width, is_whole=is_whole)
    reasons = _render_reasons(explanation, width=width)
    return "\n".join([head, "", *reasons, "", "Conditions:", *conditions, "", *story]).rstrip() + "\n"


def _render_reasons(explanation: Explanation | NodeExplanation, *, width: int) -> list[str]:
    lines = _wrap(explanation.summary, "Well", width=width) if explanation.summary else []
    for why in explanation.why[:MOST_REASONS]:
        lines += _render_why(why, now=explanation.now, width=width)
    if (left := len(explanation.why) - MOST_REASONS) > 0:
        lines += _wrap(f"{left} more: klet explain -o json has them", "", width=width)
    return lines


def _render_condition(condition: ExplainedCondition, *, now: datetime, width: int) -> list[str]:
    since = f", since {_clock(condition.since, now=now)}" if condition.since is not None else ""
    words = ": ".join(word for word in (condition.reason, condition.message) if word)
    return _wrap(f"{condition.type} is {condition.status}{since}" + (f" ({words})" if words else ""), "", width=width)


def _render_state(state: PodState) -> str:
    if not state.known:
        last = f", last seen {state.phase}" if state.phase else ""
        return f"not on this node any more{last}"
    if state.phase in {"Succeeded", "Failed"}:
        words = [state.phase]
    else:
        words = [state.phase or "no status yet"]
        words += ["terminating"] if state.terminating else []
        words += [f"{'ready' if state.ready else 'not ready'} ({state.containers_ready} of {state.containers})"]
    words += [f"{state.restarts} restart{'s' if state.restarts > 1 else ''}"] if state.restarts else []
    return ", ".join(words)


def _render_why(why: Why, *, now: datetime, width: int) -> list[str]:
    lines = _wrap(f"{why.reason}: {why.message}", LABELS.get(why.kind, "Why"), width=width)
    label = "When" if why.kind == "past" else "Since"
    if why.since is not None:
        lines += _wrap(f"{_clock(why.since, now=now)} ({human_duration(now - why.since)} ago)", label, width=width)
    if why.next:
        when = ""
        if why.next_at is not None:
            left = why.next_at - now
            due = f"in {human_duration(left)}" if left > timedelta(seconds=1) else "now"
            when = f" at {_clock(why.next_at, now=now)} ({due})"
        lines += _wrap(f"{why.next}{when}", "Next", width=width)
    return lines


def _render_timeline(explanation: Explanation | NodeExplanation, *, width: int, is_whole: bool) -> list[str]:
    steps = explanation.timeline
    if not steps:
        return ["Nothing is recorded about it yet."]
    if is_whole:
        return ["What happened:", *render_story(steps)]
    folded = fold_story(steps)
    left = sum(step.times for step in steps) - len(folded)
    head = f"What happened, {render_beginning(steps[-1])}".partition(", uid")[0]
    more = f"({left} more records: klet explain --all)" if left else ""
    return [head, *(render_folded(line, width=width) for line in folded), *([more] if more else [])]


def _clock(instant: datetime, *, now: datetime) -> str:
    """Return the time, with the day if it is another one."""
    return f"{instant:%H:%M:%S} UTC" if instant.date() == now.date() else f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def _wrap(text: str, label: str, *, width: int) -> list[str]:
    """Return a text beside its label, in a few lines at most."""
    first = f"{label:<{_INDENT}}" if label else ""
    return textwrap.wrap(
        text,
        width=width,
        initial_indent=first,
        subsequent_indent=" " * _INDENT,
        max_lines=LONGEST_MESSAGE,
        placeholder=" …",
        break_long_words=True,
        break_on_hyphens=False,
    )
