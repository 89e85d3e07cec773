"""`/metrics`: what the agent counts."""

from aiohttp import web

from klet.metrics import CONTENT_TYPE, MetricRegistry


class MetricRoutes:
    """The metrics of the agent as text."""

    def __init__(self, *, registry: MetricRegistry) -> None:
        self._registry = registry

    async def show(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        return web.Response(body=self._registry.write(), headers={"Content-Type": CONTENT_TYPE})
