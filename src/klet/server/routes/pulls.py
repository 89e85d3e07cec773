"""`/klet/v1/pulls`: how far the images are that are being pulled."""

from aiohttp import web

from klet.aio.clock import Clock
from klet.api import klet_v1
from klet.model.pull_progress import PullProgress, describe_pull
from klet.model.roles import PullReader


class PullRoutes:
    """Serves the progress of pulls, measured when somebody asks."""

    def __init__(self, *, pulls: PullReader, clock: Clock) -> None:
        self._pulls = pulls
        self._clock = clock

    async def list_pulls(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        pulls = tuple(_entry(pull) for pull in await self._pulls.look())
        listing = klet_v1.PullListing(now=self._clock.now(), pulls=pulls)
        return web.Response(body=klet_v1.encode(listing), content_type="application/json")


def _entry(pull: PullProgress) -> klet_v1.PullEntry:
    return klet_v1.PullEntry(
        image=pull.image,
        namespace=pull.namespace,
        pod=pull.pod,
        since=pull.since,
        elapsed_seconds=pull.elapsed.total_seconds(),
        stage=str(pull.stage),
        fetched_bytes=pull.fetched,
        total_bytes=pull.total,
        bytes_per_second=pull.rate,
        seconds_left=pull.left.total_seconds() if pull.left is not None else None,
        summary=describe_pull(pull),
    )
