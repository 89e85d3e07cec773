"""`/healthz` and its parts."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from aiohttp import web

HealthCheck: TypeAlias = Callable[[], str | None]
"""The error, or None when the check passes."""


class CheckMetrics(Protocol):
    """Counts the results of checks."""

    def note(self, name: str, *, is_well: bool) -> None: ...


class HealthRoutes:
    """Reports whether the agent is healthy."""

    def __init__(self, *, checks: Mapping[str, HealthCheck], metrics: CheckMetrics) -> None:
        self._checks = checks
        self._metrics = metrics

    async def check_all(self, request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        found = {name: check() for name, check in self._checks.items()}
        for name, error in found.items():
            if name not in excluded:
                self._metrics.note(name, is_well=error is None)
        text, is_well = render_checks(found, excluded)
        if is_well and "verbose" not in request.query:
            return web.Response(text="ok")
        return web.Response(status=200 if is_well else 500, text=text)

    async def check_one(self, request: web.Request) -> web.Response:
        """Return the check that the path ends with."""
        check = self._checks.get(request.path.rpartition("/")[2])
        if check is None:
            return web.Response(status=404, text="404 page not found\n")
        error = check()
        if error is None:
            return web.Response(text="ok")
        return web.Response(status=500, text=f"internal server error: {error}\n")


def pass_always() -> None:
    """Pass: `ping` passes if it is answered, and `log` as long as nothing can fail there."""


def render_checks(checks: dict[str, str | None], excluded: set[str]) -> tuple[str, bool]:
    """Return the verbose text of all checks, and whether those that count pass."""
    lines = []
    is_well = True
    for name, error in checks.items():
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
        elif error is None:
            lines.append(f"[+]{name} ok")
        else:
            lines.append(f"[-]{name} failed: reason withheld")
            is_well = False
    unknown = sorted(excluded - checks.keys())
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    lines.append("healthz check passed" if is_well else "healthz check failed")
    return "\n".join(lines) + "\n", is_well
