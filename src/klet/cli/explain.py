"""`klet explain`: why a pod is as it is, and what happened to it. Also of pods that are gone."""

import shutil
import sys
from typing import Final

import msgspec

from klet.cli.client import AgentClient, AgentError, Explanation
from klet.cli.explanation import render_explanation
from klet.cli.json_text import as_json_text
from klet.cli.names import PodName, choose_name, parse_reference, pod_names, told_names

NARROWEST: Final = 40
WIDEST: Final = 120
NOT_FOUND: Final = 404


def print_explanation(
    client: AgentClient, text: str, *, namespace: str | None, as_json: bool, is_whole: bool = False
) -> None:
    reference = parse_reference(text, namespace=namespace)

    def remembered() -> frozenset[PodName]:
        told = client.told_pods()
        return told_names(told.pods, node_name=told.node_name)

    body = _explain(client, choose_name(reference, pod_names(client.all_pods()), remembered))
    if as_json:
        shown = as_json_text(msgspec.json.decode(body))
    else:
        width = min(WIDEST, max(NARROWEST, shutil.get_terminal_size(fallback=(80, 24)).columns))
        explanation = msgspec.json.decode(body, type=Explanation)
        shown = render_explanation(explanation, width=width, is_whole=is_whole)
    sys.stdout.write(shown)
    sys.stdout.flush()  # here, where a reader that went away is dealt with


def _explain(client: AgentClient, name: PodName) -> bytes:
    try:
        return client.explain(name.namespace, name.name)
    except AgentError as error:
        if error.status != NOT_FOUND:
            raise
        # It has just gone, with all that was recorded about it.
        raise AgentError(error.status, f"{error}; `klet ps` lists the pods that are there") from error
