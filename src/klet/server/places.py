"""Which paths the API has at all, before anybody is asked who they are: upstream's multiplexer. Pure."""

from dataclasses import dataclass
from typing import Final, TypeAlias

_PREFIXES: Final = frozenset(
    {
        *("pods", "run", "exec", "attach", "portForward", "containerLogs", "stats", "logs", "runningpods"),
        *("checkpoint", "klet"),
    }
)
_WITH_SLASH: Final = frozenset({"/stats", "/logs", "/runningpods", "/checkpoint", "/debug/pprof"})
_EXACT: Final = frozenset(
    {
        *("/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop", "/healthz/device-plugin"),
        *("/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes", "/metrics/slis"),
        *("/configz", "/debug/flags/v"),
    }
)
_ONLY_FOR_DEBUGGING: Final = frozenset({"/configz", "/checkpoint", "/debug/flags/v"})


@dataclass(frozen=True, slots=True)
class Inside:
    """A path of the API, if only to say that nothing is there: whoever asks must be allowed to."""


@dataclass(frozen=True, slots=True)
class Outside:
    """No path of the API."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The same with a slash at its end."""

    to: str


Place: TypeAlias = Inside | Outside | Moved


def find_place(path: str, *, has_debugging: bool) -> Place:
    """`has_debugging` is `enableDebuggingHandlers`."""
    first = path.removeprefix("/").partition("/")[0]
    if not has_debugging and (path in _ONLY_FOR_DEBUGGING or first == "checkpoint"):
        return Outside()
    if path in _WITH_SLASH:
        return Moved(f"{path}/")
    is_known = path.startswith("/") and (first in _PREFIXES or path in _EXACT or path.startswith("/debug/pprof/"))
    return Inside() if is_known else Outside()


def find_health(path: str) -> Place:
    """The paths of the listener that tells of health alone."""
    return Inside() if path in {"/healthz", "/healthz/ping"} else Outside()
