"""`/klet/v1/images`: the images of the runtime with their users, and what image garbage collection would do."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from msgspec import Struct

from klet.api import klet_v1
from klet.errors import KletError
from klet.server.roles import ServedImages


class ImageRoutes:
    """Serves what is known of images."""

    def __init__(self, *, images: ServedImages) -> None:
        self._images = images

    async def list_images(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        return await _answer(self._images.images)

    async def preview_collection(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        return await _answer(self._images.preview)


async def _answer(ask: Callable[[], Awaitable[Struct]]) -> web.Response:
    """Send an answer; without the runtime there is none, and the error says why."""
    try:
        answer = await ask()
    except KletError as error:
        return web.Response(status=503, text=str(error))
    return web.Response(body=klet_v1.encode(answer), content_type="application/json")
