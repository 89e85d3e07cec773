"""Network interfaces that others made or removed while the agents ran. Pure.

Both agents see all interfaces of the machine, and one follows the other: what was not there all the time is dropped
from both recordings. The interface of a pod has the name of one that stays.
"""

import re
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from klet.testing.metrics_comparison.recordings import SUMMARIES, Recording, Scrape

_INTERFACE: Final = re.compile(r'[{,]interface="([^"]*)"')


def drop_visitors(*recordings: Recording) -> list[Recording]:
    """Return the recordings without interfaces that were not there at all times."""
    seen = [names for recording in recordings for names in recording.interfaces]
    visitors = frozenset[str]().union(*seen) - frozenset.intersection(*seen) if seen else frozenset[str]()
    return [
        replace(each, first=_without(each.first, visitors), second=_without(each.second, visitors))
        for each in recordings
    ]


def _without(scrape: Scrape, names: frozenset[str]) -> Scrape:
    if not names:
        return scrape
    return Scrape(
        {
            route: _thin_summary(body, names) if route in SUMMARIES else _thin_text(body, names)
            for route, body in scrape.bodies.items()
        }
    )


def _thin_text(body: str, names: frozenset[str]) -> str:
    kept = [line for line in body.splitlines() if (found := _INTERFACE.search(line)) is None or found[1] not in names]
    return "".join(f"{line}\n" for line in kept)


def _thin_summary(body: str, names: frozenset[str]) -> str:
    document: dict[str, Any] = msgspec.json.decode(body)
    for whole in (document.get("node", {}), *document.get("pods", ())):
        if (network := whole.get("network")) is not None:
            network["interfaces"] = [each for each in network.get("interfaces", ()) if each["name"] not in names]
    return msgspec.json.encode(document).decode()
