"""`/stats/summary`: what the node and its pods use."""

from aiohttp import web

from klet.api.stats import encode
from klet.errors import KletError
from klet.model.stats import SummaryReader
from klet.server.routes.pods import not_acceptable


class StatsRoutes:
    """The summary as JSON."""

    def __init__(self, *, summaries: SummaryReader) -> None:
        self._summaries = summaries

    async def summarize(self, request: web.Request) -> web.Response:
        if (refused := not_acceptable(request)) is not None:
            return refused
        given = request.query.get("only_cpu_and_memory")
        if given is None and request.method == "POST":
            try:
                value = (await request.post()).get("only_cpu_and_memory", "")
            except ValueError:
                return _fail("parse form failed")
            given = value if isinstance(value, str) else ""
        try:
            summary = await self._summaries.summary(only_cpu_and_memory=given == "true")
        except KletError as error:
            return _fail(str(error))
        return web.Response(body=encode(summary), content_type="application/json")


def _fail(message: str) -> web.Response:
    return web.Response(status=500, text=f"Internal Error: {message}")
