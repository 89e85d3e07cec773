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

    def add_to(self, router: web.UrlDispatcher) -> None:
        router.add_route("*", "/configz", self._configz)
        router.add_get("/runningpods/", self._running_pods, allow_head=False)

    async def _configz(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        body = b'{"kubeletconfig":' + self._configuration + b"}"
        headers = {"X-Content-Type-Options": "nosniff"}
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _running_pods(self, request: web.Request) -> web.Response:
        if (refused := not_acceptable(request)) is not None:
            return refused
        try:
            return pod_list(await self._running.running_pods())
        except CriError as error:
            return web.Response(status=500, text=str(error))


class DisabledRoutes:
    """What `enableDebuggingHandlers: false` leaves of the paths that reach into pods. To be given before all others."""

    PATHS = ("run", "exec", "attach", "portForward", "containerLogs", "runningpods", "debug/pprof", "logs")

    def add_to(self, router: web.UrlDispatcher) -> None:
        for path in self.PATHS:
            # Paths are matched decoded: `.` alone would let one with a line break (%0A) through to the routes behind.
            router.add_route("*", f"/{path}/{{rest:(?s:.*)}}", self._refuse)

    async def _refuse(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        headers = {"X-Content-Type-Options": "nosniff"}
        return web.Response(status=405, text="Debug endpoints are disabled.\n", headers=headers)
