"""`klet ps` and `klet logs`: looking at pods through the agent's own API."""

import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Protocol

from msgspec.structs import replace

from klet.api.codec import encode, to_builtins
from klet.api.klet_v1 import PullEntry
from klet.api.pod import Pod
from klet.cli.client import AgentClient
from klet.cli.journal_feed import JournalFeed
from klet.cli.json_text import as_json_text
from klet.cli.names import choose_container, container_names, find_pod, parse_reference
from klet.cli.pod_table import build_row, column_widths, pod_columns, pod_header, render_lines, render_table
from klet.cli.pull_words import PodName, pulls_by_pod
from klet.model.foreign_text import as_terminal_text

WATCH_SECONDS = 1.0


class Instants(Protocol):
    """Says what time it is."""

    def now(self) -> datetime: ...


class PodFormat(StrEnum):
    """How `klet ps` prints."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def print_pods(client: AgentClient, *, namespace: str | None, form: PodFormat, clock: Instants) -> None:
    if form in {PodFormat.JSON, PodFormat.YAML}:
        listing = client.list_pods()
        listing = replace(listing, items=_of_namespace(listing.items or (), namespace))
        is_json = form is PodFormat.JSON
        _write(as_json_text(encode(listing)) if is_json else _as_yaml_text(to_builtins(listing)))
        return
    pulls = pulls_by_pod(client.pulls())
    rows = _rows(client, pulls, namespace=namespace, is_wide=form is PodFormat.WIDE, clock=clock)
    if rows:
        _write(render_table(pod_header(is_wide=form is PodFormat.WIDE), list(rows.values())))
    else:
        sys.stderr.write("No pods.\n")


def watch_pods(client: AgentClient, *, namespace: str | None, is_wide: bool, clock: Instants) -> None:
    """Print the table, and then each row again when it changes, until interrupted."""
    shown: dict[str, list[str]] = {}
    widths: list[int] = []
    header = pod_header(is_wide=is_wide)
    with JournalFeed(client=client, since=clock.now()) as feed:
        while True:
            # The progress of a pull is left out: it would be news every second.
            rows = _rows(client, {}, namespace=namespace, is_wide=is_wide, clock=clock)
            # An age changes all the time and is no news.
            news = [row for uid, row in rows.items() if _without_age(shown.get(uid)) != _without_age(row)]
            if news:
                lines = [header, *news] if not widths else news
                # Columns only grow, so that later rows stand under the earlier ones.
                widths = column_widths([header, *news], at_least=widths)
                _write(render_lines(lines, widths))
            shown = rows
            feed.wait(WATCH_SECONDS)


def print_logs(
    client: AgentClient, text: str, *, namespace: str | None, container: str | None, query: Mapping[str, str]
) -> None:
    pod = find_pod(client.pods(), parse_reference(text, namespace=namespace))
    name = choose_container(pod, container)
    if container is None and len(names := container_names(pod)) > 1:
        sys.stderr.write(f"container {name} of: {', '.join(names)}\n")
    for piece in client.logs(pod.metadata.namespace, pod.metadata.name, name, query):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def log_query(
    *, follow: bool, tail: int, since: timedelta | None, timestamps: bool, previous: bool
) -> Mapping[str, str]:
    """Return the options in the words of the kubelet's API; what is not asked for is left out."""
    query: dict[str, str] = {}
    for name, wanted in (("follow", follow), ("timestamps", timestamps), ("previous", previous)):
        if wanted:
            query[name] = "true"
    if tail >= 0:
        query["tailLines"] = str(tail)
    if since is not None:
        query["sinceSeconds"] = str(max(1, ceil(since.total_seconds())))
    return query


def _as_yaml_text(value: object) -> str:
    # Imported here: the table, which nearly everybody wants, should not wait for it.
    import yaml  # noqa: PLC0415

    return str(yaml.safe_dump(value, sort_keys=False))


def _rows(
    client: AgentClient,
    pulls: Mapping[PodName, PullEntry],
    *,
    namespace: str | None,
    is_wide: bool,
    clock: Instants,
) -> dict[str, list[str]]:
    pods = sorted(
        _of_namespace(client.all_pods(), namespace), key=lambda pod: (pod.metadata.namespace, pod.metadata.name)
    )
    now = clock.now()
    rows = {}
    for pod in pods:
        row = build_row(pod, now=now, pull=pulls.get((pod.metadata.namespace, pod.metadata.name)))
        rows[pod.metadata.uid] = pod_columns(row, is_wide=is_wide)
    return rows


def _of_namespace(pods: tuple[Pod, ...], namespace: str | None) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if namespace in {None, pod.metadata.namespace})


def _without_age(row: list[str] | None) -> list[str] | None:
    return None if row is None else [cell for index, cell in enumerate(row) if index != 6]


def _write(text: str) -> None:
    sys.stdout.write(as_terminal_text(text))
    sys.stdout.flush()
