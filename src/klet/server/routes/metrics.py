"""`/metrics` and below: what the agent counts, as text."""

import zlib
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from klet.metrics import CONTENT_TYPE, AgentMetrics

_GZIP: Final = 31
"""zlib's word for the largest window, with gzip's header."""
_FASTEST: Final = 1
"""A scrape is read once, mostly on the same network."""


class MetricRoutes:
    """The metrics of the agent as text."""

    def __init__(self, *, metrics: AgentMetrics, refresh: Callable[[], Awaitable[None]]) -> None:
        self._metrics = metrics
        self._refresh = refresh
        """Reads what `/metrics` shows of the disk."""

    async def show(self, request: web.Request) -> web.Response:
        await self._refresh()
        return answer_scrape(request, self._metrics.agent.write(), started=self._metrics.process_started)

    async def show_probes(self, request: web.Request) -> web.Response:
        return answer_scrape(request, self._metrics.probes.write(), started=self._metrics.process_started)

    async def show_slis(self, request: web.Request) -> web.Response:
        """Show the results of health checks; DELETE forgets them."""
        if request.method == "DELETE":
            self._metrics.slis.reset()
            return web.Response(text="metrics reset\n")
        return answer_scrape(request, self._metrics.slis.write(), started=self._metrics.process_started)


def answer_scrape(request: web.Request, text: bytes, *, started: float) -> web.Response:
    """Return the answer to a scrape, compressed if the client accepts that. `started` is the start of the process."""
    headers = {"Content-Type": CONTENT_TYPE, "Process-Start-Time-Unix": str(int(started))}
    if accepts_gzip(request.headers.getall("Accept-Encoding", ())):
        headers["Content-Encoding"] = "gzip"
        packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, _GZIP)
        text = packer.compress(text) + packer.flush()
    return web.Response(body=text, headers=headers)


def accepts_gzip(fields: list[str] | tuple[str, ...]) -> bool:
    """Return whether the client names gzip among the encodings that it accepts, and not with the weight 0."""
    for field in fields:
        for part in field.split(","):
            coding, _, parameters = part.partition(";")
            if coding.strip().lower() in ("gzip", "*"):
                weight = parameters.strip().lower().removeprefix("q=").strip()
                return not weight or weight.strip("0.") != ""
    return False
