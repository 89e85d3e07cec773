"""A registry on the loopback that stops in the middle of a blob until a test lets it go on: pulls to look at."""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

from aiohttp import web
from msgspec import Struct

from klet.host.images import ImageConfig, ImageEntry, image_blobs

_CHUNK: Final = 1 << 20


class HeldImage(Struct, frozen=True):
    """An image that the registry has."""

    repository: str
    tag: str
    manifest: bytes
    blobs: Mapping[str, bytes]
    """By digest, without the manifest."""

    @property
    def layers(self) -> Sequence[tuple[str, int]]:
        """The digests and sizes."""
        return [(each["digest"], each["size"]) for each in json.loads(self.manifest)["layers"]]


def make_image(repository: str, *, layers: Sequence[Sequence[ImageEntry]], tag: str = "1") -> HeldImage:
    manifest, blobs = image_blobs(layers, ImageConfig(command=("sh",)))
    return HeldImage(repository, tag, manifest, {_digest(blob): blob for blob in blobs})


class HeldRegistry:
    """Answers pulls. A blob that is held is sent up to some byte, and the rest when it is released."""

    def __init__(self, images: Sequence[HeldImage]) -> None:
        self._images = {(image.repository, image.tag): image for image in images}
        self._blobs = {digest: blob for image in images for digest, blob in image.blobs.items()}
        self._held: dict[str, tuple[int, asyncio.Event]] = {}
        self.address = ""

    def hold(self, digest: str, *, after: int) -> None:
        """Send that many bytes of a blob and then wait."""
        self._held[digest] = (after, asyncio.Event())

    def release(self) -> None:
        """Send what is held."""
        for _, released in self._held.values():
            released.set()

    @contextmanager
    def serve_in_thread(self) -> Iterator[Callable[[], object]]:
        """Answer in a thread, for tests without a loop. Yield what releases the blobs that are held."""
        ready, ends = threading.Event(), list[Callable[[], object]]()

        async def serve() -> None:
            loop, end = asyncio.get_running_loop(), asyncio.Event()
            async with self.serve():
                ends.extend(partial(loop.call_soon_threadsafe, each) for each in (end.set, self.release))
                ready.set()
                await end.wait()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="registry")
        thread.start()
        ready.wait()
        end, release = ends
        try:
            yield release
        finally:
            end()
            thread.join()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["HeldRegistry"]:
        application = web.Application()
        application.router.add_get("/v2/", self._root)
        application.router.add_get("/v2/{name:.+}/manifests/{reference}", self._manifest)
        application.router.add_get("/v2/{name:.+}/blobs/{digest}", self._blob)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.address = f"{host}:{port}"
        try:
            yield self
        finally:
            self.release()
            await runner.cleanup()

    async def _root(self, _request: web.Request) -> web.Response:
        return web.Response(text="{}", content_type="application/json")

    async def _manifest(self, request: web.Request) -> web.Response:
        name, reference = request.match_info["name"], request.match_info["reference"]
        for (repository, tag), image in self._images.items():
            if repository == name and reference in {tag, _digest(image.manifest)}:
                headers = {
                    "Docker-Content-Digest": _digest(image.manifest),
                    "Content-Type": "application/vnd.oci.image.manifest.v1+json",
                }
                return web.Response(body=image.manifest, headers=headers)
        raise web.HTTPNotFound

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        digest = request.match_info["digest"]
        if (blob := self._blobs.get(digest)) is None:
            raise web.HTTPNotFound
        response = web.StreamResponse(headers={"Content-Length": str(len(blob)), "Docker-Content-Digest": digest})
        await response.prepare(request)
        after, released = self._held.get(digest, (len(blob), None))
        sent = 0
        while sent < len(blob):
            end = min(sent + _CHUNK, len(blob) if sent >= after else after)
            await response.write(blob[sent:end])
            sent = end
            if sent == after and released is not None:
                await released.wait()
        await response.write_eof()
        return response


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
