"""`klet explain`: why a pod is as it is, and what happened to it; also of pods that are gone, and of the node."""

import shutil
import sys
from typing import Final

from klet.api.klet_v1 import Explanation, encode_readable
from klet.cli.client import AgentClient, AgentError
from klet.cli.explanation import render_explanation, render_node
from klet.cli.json_text import as_json_text
from klet.cli.names import PodName, UnclearName, choose_name, is_node, parse_reference, pod_names, recorded_names
from klet.model.foreign_text import as_terminal_text

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
