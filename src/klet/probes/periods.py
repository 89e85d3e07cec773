"""Periods below a second, which the API cannot express: the annotation `klet.dev/probe-periods`.

Its value lists probes by container and kind: `main.readiness=200ms,db.liveness=500ms`.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias

from klet.api.container import Container
from klet.api.handlers import Probe
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.api.times import Duration, TimeError
from klet.errors import KletError
from klet.model.probes import ProbeKind

ANNOTATION = "klet.dev/probe-periods"
SHORTEST = timedelta(milliseconds=10)

ProbePeriods: TypeAlias = Mapping[tuple[str, ProbeKind], timedelta]


class ProbePeriodsError(KletError):
    """An annotation that klet does not understand."""

    def __init__(self, message: str) -> None:
        super().__init__(f"metadata.annotations[{ANNOTATION}]: {message}")


def probe_periods(pod: Pod) -> ProbePeriods:
    """Return the periods that a pod asks for; each must name a probe that the pod has."""
    periods = parse_periods(pod.metadata.annotations.get(ANNOTATION, ""))
    containers = {container.name: container for container in probed_containers(pod)}
    for name, kind in periods:
        if name not in containers:
            known = ", ".join(sorted(containers))
            raise ProbePeriodsError(f'the pod has no container "{name}" that is probed (it has {known})')
        if probe_of(containers[name], kind) is None:
            raise ProbePeriodsError(f'container "{name}" has no {kind} probe')
    return periods


def parse_periods(text: str) -> ProbePeriods:
    """Read the annotation's value. Empty means nothing."""
    periods: dict[tuple[str, ProbeKind], timedelta] = {}
    for entry in text.split(",") if text.strip() else ():
        key, period = _parse_entry(entry.strip())
        if key in periods:
            raise ProbePeriodsError(f'"{entry.strip()}" gives {key[0]}.{key[1]} a second period')
        periods[key] = period
    return periods


def probed_containers(pod: Pod) -> tuple[Container, ...]:
    """Return regular containers, then sidecars: no others are probed."""
    return (*pod.spec.containers, *(container for container in pod.spec.init_containers if is_sidecar(container)))


def probe_of(container: Container, kind: ProbeKind) -> Probe | None:
    match kind:
        case ProbeKind.STARTUP:
            return container.startup_probe
        case ProbeKind.READINESS:
            return container.readiness_probe
        case ProbeKind.LIVENESS:
            return container.liveness_probe


def _parse_entry(entry: str) -> tuple[tuple[str, ProbeKind], timedelta]:
    name, equals, length = entry.partition("=")
    container, _, kind = name.strip().rpartition(".")
    if not equals or not container:
        raise ProbePeriodsError(f'"{entry}" must have the form <container>.<probe>=<duration>, as main.readiness=200ms')
    if kind not in set(ProbeKind):
        raise ProbePeriodsError(f'"{entry}": "{kind}" must be one of startup, readiness, liveness')
    try:
        period = Duration.parse(length.strip())
    except TimeError as error:
        raise ProbePeriodsError(f'"{entry}": {error}') from error
    if period < SHORTEST:
        raise ProbePeriodsError(f'"{entry}": the period must be at least 10ms')
    return (container, ProbeKind(kind)), period
