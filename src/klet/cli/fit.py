"""`klet fit`: whether pods would be admitted on this node now, by the agent's own rules."""

import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from klet.api.klet_v1 import encode_readable
from klet.api.klet_v1_fit import FitAnswer, FitPlacement
from klet.cli.client import AgentClient
from klet.cli.json_text import as_json_text
from klet.cli.manifests import read_input
from klet.cli.pod_table import render_table
from klet.errors import KletError
from klet.model.foreign_text import as_terminal_text

_HEADER = ("RESOURCE", "REQUESTED", "USED", "NODE HAS", "")


class BadManifests(KletError):
    """Manifests that no node would take."""


def print_fit(client: AgentClient, files: Sequence[str], *, source: str, as_json: bool, stdin: BinaryIO) -> int:
    """Print what admission would decide about each pod of the files; return 0 if each of them fits."""
    # The agent checks every rule itself; here the documents are only separated.
    given = read_input(files, check=lambda _content: (), is_strict=False, stdin=stdin)
    manifests = [pod.content for origin in given.origins for pod in origin.pods]
    if given.errors or not manifests:
        raise BadManifests("\n".join(given.errors) or f"{', '.join(files)}: no pod in it")
    answers = [client.fit(manifest, source=source) for manifest in manifests]
    for warning in given.warnings:
        sys.stderr.write(as_terminal_text(f"warning: {warning}\n"))
    text = "\n".join(as_json_text(encode_readable(each)) if as_json else render_fit(each) for each in answers)
    sys.stdout.write(as_terminal_text(text))
    sys.stdout.flush()
    return 0 if all(answer.fits for answer in answers) else 1


def render_fit(answer: FitAnswer) -> str:
    """Return one answer for people."""
    return "\n".join(_lines(answer)) + "\n"


def _lines(answer: FitAnswer) -> Iterator[str]:
    pod = f"{answer.pod.namespace}/{answer.pod.name}"
    if answer.fits:
        after = f", after {len(answer.victims)} of the pods here have been stopped" if answer.victims else ""
        yield f"{pod} fits: it would be admitted now{after}."
    else:
        yield f"{pod} does not fit: it would be rejected now ({answer.reasons[0].reason})."
    for reason in answer.reasons:
        yield f"  {reason.reason}: {reason.message}" if reason.reason else f"  {reason.message}"
        if reason.why:
            yield f"    {reason.why}"
    for victim in answer.victims:
        yield f"  would be stopped: {victim.namespace}/{victim.name} ({victim.qos_class})"
    if answer.replaces is not None:
        yield "  The pod of this name that is here was not counted: this one would take its place."
    if answer.resources:
        yield ""
        rows = [
            (each.resource, each.requested, each.used, each.allocatable, "too little" if each.short else "")
            for each in answer.resources
        ]
        yield render_table(_HEADER, rows).rstrip("\n")
    for place in answer.placement:
        yield _placed(place)


def _placed(place: FitPlacement) -> str:
    cpus = f"CPUs {_ranges(place.cpus)} for itself" if place.cpus else "shared CPUs"
    nodes = f", NUMA nodes {_ranges(place.numa_nodes)}" if place.numa_nodes else ""
    return f"container {place.container}: {cpus}{nodes}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers as cpusets write them: `0-2,5`."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
