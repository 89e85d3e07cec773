"""What one agent answered: every route, twice, with a time in between; kept as the files that a person would save."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from klet.testing.metrics_comparison.text_format import ScrapedFamily, parse_text

SUMMARY: Final = "/stats/summary"
CPU_AND_MEMORY: Final = "/stats/summary?only_cpu_and_memory=true"
SUMMARIES: Final = (SUMMARY, CPU_AND_MEMORY)
OWN: Final = "/metrics"
CADVISOR: Final = "/metrics/cadvisor"
RESOURCE: Final = "/metrics/resource"
PROBES: Final = "/metrics/probes"
SLIS: Final = "/metrics/slis"
TEXTS: Final = (OWN, CADVISOR, RESOURCE, PROBES, SLIS)
ROUTES: Final = (*TEXTS, *SUMMARIES)
_MISSING: Final = "404 page not found\n"
_INTERFACES: Final = "interfaces.json"
_MOUNTS: Final = "mounts.json"


class Scrape(Struct, frozen=True):
    """The bodies of one round, by route; a route that the agent does not serve is not in it."""

    bodies: Mapping[str, str]

    def families(self, route: str) -> Mapping[str, ScrapedFamily]:
        return parse_text(self.bodies.get(route, ""))

    def summary(self, route: str) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.bodies.get(route, "{}"))
        return decoded


class Recording(Struct, frozen=True):
    """Two rounds of one agent."""

    first: Scrape
    second: Scrape
    interfaces: tuple[frozenset[str], ...] = ()
    """Those of the machine, at several times."""
    mounts: tuple[frozenset[str], ...] = ()
    """Where something is mounted on the machine, at the same times."""


def write_recording(recording: Recording, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, seen in ((_INTERFACES, recording.interfaces), (_MOUNTS, recording.mounts)):
        (directory / name).write_bytes(msgspec.json.encode([sorted(each) for each in seen]))
    for number, scrape in enumerate((recording.first, recording.second), start=1):
        made = directory / str(number)
        made.mkdir(parents=True, exist_ok=True)
        for route in ROUTES:
            (made / file_name(route)).write_text(scrape.bodies.get(route, _MISSING))


def read_recording(directory: Path) -> Recording:
    interfaces, mounts = (
        msgspec.json.decode((directory / name).read_bytes(), type=tuple[frozenset[str], ...])
        for name in (_INTERFACES, _MOUNTS)
    )
    return Recording(_read_scrape(directory / "1"), _read_scrape(directory / "2"), interfaces, mounts)


def file_name(route: str) -> str:
    name = route.strip("/").replace("/", "-").partition("?")[0]
    return (
        f"{name}-cpu-and-memory.json" if route == CPU_AND_MEMORY else f"{name}{'.json' * (route == SUMMARY) or '.txt'}"
    )


def _read_scrape(directory: Path) -> Scrape:
    bodies = {route: (directory / file_name(route)).read_text() for route in ROUTES}
    return Scrape({route: body for route, body in bodies.items() if body != _MISSING})
