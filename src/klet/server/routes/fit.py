"""`/klet/v1/fit`: whether the pod of a manifest would be admitted now."""

from typing import Final

from aiohttp import web

from klet.api import klet_v1
from klet.api.klet_v1_fit import API, SOURCE_QUERY, STATIC
from klet.errors import KletError
from klet.server.roles import ManifestReading, ServedFit

LONGEST_MANIFEST: Final = 10 * 1024 * 1024
"""Bytes; no source takes a longer one."""


class FitRoutes:
    """Serves what admission would decide. Nothing is changed."""

    def __init__(self, *, manifests: ManifestReading, fit: ServedFit) -> None:
        self._manifests = manifests
        self._fit = fit

    async def look(self, request: web.Request) -> web.Response:
        """Answer for the one pod of the manifest in the body."""
        source = request.query.get(SOURCE_QUERY, "")
        if source not in {"", STATIC, API}:
            return web.Response(status=400, text=f'{SOURCE_QUERY}: "{source}" is neither {STATIC} nor {API}')
        body = bytearray()
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > LONGEST_MANIFEST:
                return web.Response(status=413, text=f"the manifest is longer than {LONGEST_MANIFEST} bytes")
        try:
            pod = self._manifests.read(bytes(body), source=source)
        except KletError as error:
            return web.Response(status=400, text=str(error))
        return web.Response(body=klet_v1.encode(await self._fit.look(pod)), content_type="application/json")
