"""Network interfaces and mounts that others made or removed while the agents ran. Pure.

Both agents see all of the machine, and one follows the other: what was not there all the time is dropped from both
recordings. The interface of a pod has the name of one that stays.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from klet.testing.metrics_comparison.recordings import SUMMARIES, Recording, Scrape

_INTERFACE: Final = re.compile(r'[{,]interface="([^"]*)"')
_DEVICE: Final = re.compile(r'[{,]device="([^"]*)"')
"""Of a tmpfs it is the place where it is mounted."""


def drop_visitors(*recordings: Recording) -> list[Recording]:
    """Return the recordings without interfaces and mounts that were not there at all times."""
    interfaces = _passing([names for recording in recordings for names in recording.interfaces])
    mounts = _passing([places for recording in recordings for places in recording.mounts])
    return [
        replace(each, first=_without(each.first, interfaces, mounts), second=_without(each.second, interfaces, mounts))
        for each in recordings
    ]


def _passing(seen: Sequence[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*seen) - frozenset.intersection(*seen) if seen else frozenset[str]()


def _without(scrape: Scrape, interfaces: frozenset[str], mounts: frozenset[str]) -> Scrape:
    if not interfaces and not mounts:
        return scrape
    return Scrape(
        {
            route: _thin_summary(body, interfaces)
            if route in SUMMARIES
            else _thin_text(_thin_text(body, _INTERFACE, interfaces), _DEVICE, mounts)
            for route, body in scrape.bodies.items()
        }
    )


def _thin_text(body: str, label: re.Pattern[str], names: frozenset[str]) -> str:
    kept = [line for line in body.splitlines() if (found := label.search(line)) is None or found[1] not in names]
    return "".join(f"{line}\n" for line in kept)


def _thin_summary(body: str, names: frozenset[str]) -> str:
    document: dict[str, Any] = msgspec.json.decode(body)
    for whole in (document.get("node", {}), *document.get("pods", ())):
        if (network := whole.get("network")) is not None:
            network["interfaces"] = [each for each in network.get("interfaces", ()) if each["name"] not in names]
    return msgspec.json.encode(document).decode()
