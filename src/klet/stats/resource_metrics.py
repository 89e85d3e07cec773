"""The text of `/metrics/resource`: CPU, memory and swap of node, pods and containers, from the summary. Pure."""

from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Final, TypeAlias

from msgspec import Struct

from klet.api.stats import ContainerStats, CPUStats, MemoryStats, NodeStats, PodStats, Summary, SwapStats
from klet.stats.exposition import (
    FamilySamples,
    FamilyType,
    Number,
    SampleFamily,
    SampleRow,
    label,
    pair_families,
    write_exposition,
    write_labels,
    write_timestamp,
)

Measured: TypeAlias = NodeStats | PodStats | ContainerStats

_GAUGE: Final = FamilyType.GAUGE
_COUNTER: Final = FamilyType.COUNTER


class _Labelled(Struct, frozen=True):
    """What is measured, with its labels."""

    labels: str
    stats: Measured


def write_resource(summary: Summary | None) -> Iterator[bytes]:
    """Yield the text, family by family. None: the summary could not be made, and nothing else is shown."""
    error = _family("resource_scrape_error", _GAUGE, "1 if the usage could not be read.")
    samples = pair_families([error], [SampleRow("", "", int(summary is None))])
    return write_exposition(samples if summary is None else chain(samples, _samples(summary)))


def _samples(summary: Summary) -> Iterator[FamilySamples]:
    pods = [_Labelled(_pod_labels(pod), pod) for pod in summary.pods]
    containers = [
        _Labelled(_pod_labels(pod, container=container.name), container)
        for pod in summary.pods
        for container in pod.containers
    ]
    yield from _usage_samples("node", [_Labelled("", summary.node)])
    yield from _usage_samples("pod", pods)
    yield from _usage_samples("container", containers)
    limit = _family("container_swap_limit_bytes", _GAUGE, "Limit of swap.")
    yield from pair_families([limit], [row for each in containers for row in _swap_limit(each)])
    start = _family("container_start_time_seconds", _GAUGE, "When the container was created, in seconds since 1970.")
    yield from pair_families([start], [row for each in containers for row in _start_time(each)])


def _usage_samples(scope: str, measured: list[_Labelled]) -> Iterator[FamilySamples]:
    cpu = _family(f"{scope}_cpu_usage_seconds_total", _COUNTER, f"CPU time of the {scope}.")
    memory = _family(f"{scope}_memory_working_set_bytes", _GAUGE, f"Working set of the {scope}.")
    swap = _family(f"{scope}_swap_usage_bytes", _GAUGE, f"Swap of the {scope} in use.")
    yield from pair_families([cpu], [row for each in measured for row in _cpu(each.labels, each.stats.cpu)])
    yield from pair_families([memory], [row for each in measured for row in _memory(each.labels, each.stats.memory)])
    yield from pair_families([swap], [row for each in measured for row in _swap(each.labels, each.stats.swap)])


def _family(name: str, family_type: FamilyType, about: str) -> SampleFamily[Number]:
    return SampleFamily(name, family_type, about, lambda value: value)


def _row(labels: str, at: datetime, value: Number | None) -> Iterator[SampleRow[Number]]:
    if value is not None:
        yield SampleRow(labels, write_timestamp(at), value)


def _cpu(labels: str, cpu: CPUStats | None) -> Iterator[SampleRow[Number]]:
    if cpu is not None and cpu.usage_core_nano_seconds is not None:
        yield from _row(labels, cpu.time, cpu.usage_core_nano_seconds / 1e9)


def _memory(labels: str, memory: MemoryStats | None) -> Iterator[SampleRow[Number]]:
    if memory is not None:
        yield from _row(labels, memory.time, memory.working_set_bytes)


def _swap(labels: str, swap: SwapStats | None) -> Iterator[SampleRow[Number]]:
    if swap is not None:
        yield from _row(labels, swap.time, swap.swap_usage_bytes)


def _swap_limit(container: _Labelled) -> Iterator[SampleRow[Number]]:
    swap = container.stats.swap
    if swap is not None and swap.swap_available_bytes is not None:
        yield from _row(container.labels, swap.time, swap.swap_available_bytes + (swap.swap_usage_bytes or 0))


def _start_time(container: _Labelled) -> Iterator[SampleRow[Number]]:
    started = container.stats.start_time
    if started is not None and started.timestamp() >= 1:
        yield SampleRow(container.labels, "", started.timestamp())


def _pod_labels(pod: PodStats, *, container: str | None = None) -> str:
    pairs = [label("namespace", pod.pod_ref.namespace), label("pod", pod.pod_ref.name)]
    if container is not None:
        pairs.append(label("container", container))
    return write_labels(pairs)
