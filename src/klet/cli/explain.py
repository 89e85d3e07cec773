"""`klet explain`: what happened to a pod, and why."""

import sys

import msgspec

from klet.cli.client import AgentClient, Explanation
from klet.cli.json_text import as_json_text
from klet.cli.names import find_pod, parse_reference
from klet.cli.timeline import render_explanation


def print_explanation(client: AgentClient, text: str, *, namespace: str | None, as_json: bool) -> None:
    pod = find_pod(client.pods(), parse_reference(text, namespace=namespace))
    body = client.explain(pod.metadata.namespace, pod.metadata.name)
    if as_json:
        shown = as_json_text(msgspec.json.decode(body))
    else:
        name = f"{pod.metadata.namespace}/{pod.metadata.name} ({pod.status.phase or 'no status yet'})"
        shown = render_explanation(name, msgspec.json.decode(body, type=Explanation))
    sys.stdout.write(shown)
    sys.stdout.flush()  # here, where a reader that went away is dealt with
