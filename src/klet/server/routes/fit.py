"""`/klet/v1/fit`: whether the pod of a manifest would be admitted now."""

from aiohttp import web

from klet.api import klet_v1
from klet.api.klet_v1_fit import API, SOURCE_QUERY, STATIC
from klet.errors import KletError
from klet.server.roles import ManifestReading, ServedFit


class FitRoutes:
    """Serves what admission would decide. Nothing is changed."""

    def __init__(self, *, manifests: ManifestReading, fit: ServedFit) -> None:
        self._manifests = manifests
        self._fit = fit

    async def look(self, request: web.Request) -> web.Response:
        """Answer for the one pod of the manifest in the body, of which no listener takes more than a bounded length."""
        source = request.query.get(SOURCE_QUERY, "")
        if source not in {"", STATIC, API}:
            return web.Response(status=400, text=f'{SOURCE_QUERY}: "{source}" is neither {STATIC} nor {API}')
        try:
            pod = self._manifests.read(await request.read(), source=source)
        except KletError as error:
            return web.Response(status=400, text=str(error))
        return web.Response(body=klet_v1.encode(await self._fit.look(pod)), content_type="application/json")
