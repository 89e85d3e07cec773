"""`/flagz` and `/statusz`: the flags of the agent and what it is, behind the gates ComponentFlagz and ComponentStatusz.

The forms are upstream's: text whose delimiter changes at random, so that no program comes to depend on it, and JSON
for a client that asks for the kind and version by name.
"""

import platform
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from aiohttp import web

from klet.aio.clock import Clock
from klet.api.times import Time
from klet.version import KUBELET_VERSION, KUBERNETES_VERSION, parse_release

COMPONENT: Final = "kubelet"
DELIMITERS: Final = (":", ": ", "=", " ")
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)
_API_VERSION: Final = "config.k8s.io/v1alpha1"


class FlagzRoutes:
    """The flags, fixed since the start."""

    def __init__(self, *, flags: Mapping[str, str], randomness: random.Random) -> None:
        self._flags = dict(sorted(flags.items()))
        self._text = render_flagz(self._flags, delimiter=randomness.choice(DELIMITERS))

    async def show(self, request: web.Request) -> web.Response:
        fields = {"flags": self._flags}
        return _answer(request, "Flagz", self._text, fields)


class StatuszRoutes:
    """What the agent is, and since when it runs."""

    def __init__(self, *, paths: Sequence[str], randomness: random.Random, clock: Clock) -> None:
        self._paths = tuple(paths)
        self._randomness = randomness
        self._clock = clock
        self._started = clock.now()

    async def show(self, request: web.Request) -> web.Response:
        now = self._clock.now()
        major, minor = parse_release(KUBERNETES_VERSION)
        fields = {
            "startTime": Time.of(self._started).wire(),
            "uptimeSeconds": max(0, int((now - self._started).total_seconds())),
            "goVersion": f"python{platform.python_version()}",
            "binaryVersion": KUBELET_VERSION.removeprefix("v"),
            "emulationVersion": f"{major}.{minor}",
            "paths": self._paths,
        }
        text = render_statusz(fields, self._started, delimiter=self._randomness.choice(DELIMITERS))
        return _answer(request, "Statusz", text, fields)


def render_flagz(flags: Mapping[str, str], *, delimiter: str) -> str:
    lines = "".join(f"{name}{delimiter}{value}\n" for name, value in sorted(flags.items()))
    return f"\n{COMPONENT} flagz\n{_WARNING}\n{lines}"


def render_statusz(fields: Mapping[str, object], started: datetime, *, delimiter: str) -> str:
    uptime = fields["uptimeSeconds"]
    assert isinstance(uptime, int)
    paths = fields["paths"]
    assert isinstance(paths, tuple)
    up = f"{uptime // 3600} hr {uptime // 60 % 60:02d} min {uptime % 60:02d} sec"
    lines = (
        ("Started", started.astimezone(UTC).strftime("%a %b %e %H:%M:%S UTC %Y")),
        ("Up", up),
        ("Go version", fields["goVersion"]),
        ("Binary version", fields["binaryVersion"]),
        ("Emulation version", fields["emulationVersion"]),
        ("Paths", " ".join(paths)),
    )
    body = "".join(f"{name}{delimiter} {value}\n" for name, value in lines)
    return f"\n{COMPONENT} statusz\n{_WARNING}\n\n{body}"


def negotiate(accept: str, kind: str) -> str:
    """Return the content type for an Accept header; empty if none of it is served."""
    if not accept.strip():
        return "text/plain"
    for part in accept.split(","):
        media, *given = (each.strip() for each in part.split(";"))
        asked = dict(each.partition("=")[::2] for each in given)
        if media == "application/json" and asked.get("as") == kind:
            if (asked.get("g"), asked.get("v")) == ("config.k8s.io", "v1alpha1"):
                return "application/json"
        elif media in {"text/plain", "text/*", "*/*"} and "as" not in asked:
            return "text/plain"
    return ""


def _answer(request: web.Request, kind: str, text: str, fields: Mapping[str, object]) -> web.Response:
    chosen = negotiate(request.headers.get("Accept", ""), kind)
    if chosen == "text/plain":
        return web.Response(text=text)
    if not chosen:
        offered = f"text/plain, application/json;as={kind};v=v1alpha1;g=config.k8s.io"
        return web.Response(status=406, text=f"only the following media types are accepted: {offered}\n")
    body = {"kind": kind, "apiVersion": _API_VERSION, "metadata": {"name": COMPONENT}, **fields}
    return web.Response(body=msgspec.json.encode(body) + b"\n", content_type="application/json")
