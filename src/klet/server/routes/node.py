"""`/configz` and `/runningpods/`: how this node is configured, and what its runtime runs."""

from aiohttp import web

from klet.cri.errors import CriError
from klet.server.routes.pods import not_acceptable, pod_list
from klet.server.runtime_pods import RuntimePods


class NodeRoutes:
    """The configuration is the JSON of a KubeletConfiguration, without kind and version."""

    def __init__(self, *, configuration: bytes, running: RuntimePods) -> None:
        self._configuration = configuration
        self._running = running

    async def show_configuration(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        body = b'{"kubeletconfig":' + self._configuration + b"}"
        headers = {"X-Content-Type-Options": "nosniff"}
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def list_running(self, request: web.Request) -> web.Response:
        if (refused := not_acceptable(request)) is not None:
            return refused
        try:
            return pod_list(await self._running.running_pods())
        except CriError as error:
            return web.Response(status=500, text=str(error))
