"""Which version of the CSI specification a driver is used with (upstream: `validateVersions`). Pure."""

import re
from collections.abc import Sequence
from typing import Final

from klet.api.validation import formats
from klet.model.csi import CsiVersion, RegisteredDriver
from klet.model.downward import quoted
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.plugins import PluginInfo, VersionProblem, quoted_list

SUPPORTED_MAJOR: Final = 1
LONGEST_NAME: Final = 63
LONGEST_ENDPOINT: Final = 107
"""Bytes of a socket's path that Linux can connect to."""
_VERSION: Final = re.compile(r"\s*v?(\d+(?:\.\d+)+)", re.ASCII)
_MOST_DIGITS: Final = 19
"""Of one number of a version: upstream reads it into 64 bits."""


def parse_version(text: str) -> CsiVersion | None:
    """Read a version leniently: blanks and a `v` may come first, anything may follow two numbers or more."""
    found = _VERSION.match(text[:LONGEST_WORD])
    if found is None:
        return None
    numbers = found[1].split(".")
    if any(len(each) > _MOST_DIGITS or (len(each) > 1 and each.startswith("0")) for each in numbers):
        return None
    return CsiVersion(tuple(map(int, numbers)))


def choose_version(versions: Sequence[str]) -> CsiVersion | VersionProblem:
    """Choose the highest version that is not of a later major number than the node knows."""
    highest: CsiVersion | None = None
    unread = "<nil>"
    for text in reversed(versions):
        parsed = parse_version(text)
        if parsed is None:
            unread = f"could not parse {quoted(shorten(text, LONGEST_WORD))} as version"
        elif parsed.major <= SUPPORTED_MAJOR and (highest is None or highest.is_older_than(parsed)):
            highest = parsed
    if highest is None:
        listed = shorten(" ".join(versions), LONGEST_WORD)
        return VersionProblem(
            f"could not find a highest supported version from versions ([{listed}]) reported by this driver: {unread}"
        )
    if highest.major != SUPPORTED_MAJOR:
        return VersionProblem(f"highest supported version reported by driver is {highest}, must be v1.x")
    return highest


def check_versions(caller: str, plugin: PluginInfo, existing: RegisteredDriver | None) -> CsiVersion | VersionProblem:
    """Choose the version of a driver that registers. One of the same name that is registered must be older."""
    begin = f"kubernetes.io/csi: {caller} for CSI driver {quoted(plugin.name)} failed."
    if not plugin.versions:
        return VersionProblem(f"{begin} Plugin returned an empty list for supported versions")
    chosen = choose_version(plugin.versions)
    if isinstance(chosen, VersionProblem):
        listed = shorten(quoted_list(plugin.versions), LONGEST_WORD)
        return VersionProblem(f"{begin} None of the versions specified {listed} are supported. err={chosen.why}")
    if existing is not None and not existing.version.is_older_than(chosen):
        return VersionProblem(
            f"{begin} Another driver with the same name is already registered with a higher supported version: "
            f"{quoted(str(existing.version))}"
        )
    return chosen


def find_driver_problem(plugin: PluginInfo, existing: RegisteredDriver | None) -> str | None:
    """Return what keeps a driver from being registered (upstream: `ValidatePlugin`).

    Upstream leaves it to the API server to refuse a name. Here it must be right before it becomes part of a path.
    """
    name = shorten(plugin.name, LONGEST_WORD)
    where = f"validation failed for CSI Driver {name} at endpoint {shorten(plugin.endpoint, LONGEST_WORD)}"
    if problem := _find_name_problem(plugin.name) or _find_endpoint_problem(plugin.endpoint):
        return f"{where}: {problem}"
    chosen = check_versions("ValidatePlugin", plugin, existing)
    return f"{where}: {chosen.why}" if isinstance(chosen, VersionProblem) else None


def _find_name_problem(name: str) -> str:
    if not name or len(name) > LONGEST_NAME:
        return f"the name of a driver must have 1 to {LONGEST_NAME} characters"
    return "; ".join(formats.dns_subdomain(name.lower()))


def _find_endpoint_problem(endpoint: str) -> str:
    if not endpoint.startswith("/") or "\0" in endpoint:
        return "the endpoint must be an absolute path"
    if len(endpoint.encode()) > LONGEST_ENDPOINT:
        return f"the endpoint must have at most {LONGEST_ENDPOINT} bytes"
    return ""
