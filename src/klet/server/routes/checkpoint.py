"""`/checkpoint/`: writes the state of a running container to a file on the node."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec
from aiohttp import web

from klet.errors import KletError
from klet.server.checkpoints import ContainerCheckpoints
from klet.server.log_query import has_container
from klet.server.roles import ServedPods
from klet.server.routes.pods import not_acceptable

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_LARGEST: Final = 2**63 - 1


class CheckpointRoutes:
    """Makes checkpoints of containers."""

    def __init__(self, *, pods: ServedPods, checkpoints: ContainerCheckpoints) -> None:
        self._pods = pods
        self._checkpoints = checkpoints

    async def make(self, request: web.Request) -> web.Response:
        if (refused := not_acceptable(request)) is not None:
            return refused
        path = request.match_info
        pod, container = self._pods.find(path["namespace"], path["pod"]), path["container"]
        if pod is None:
            return web.Response(status=404, text="pod does not exist")
        if not has_container(pod, container):
            return web.Response(status=404, text=f"container {container} does not exist")
        timeout = parse_timeout(request.query.getall("timeout", []))
        if timeout is None:
            return web.Response(status=404, text="cannot parse value of timeout parameter")
        uid = self._pods.runtime_uid(pod.metadata.uid)
        try:
            archive = await self._checkpoints.make(pod, container, uid=uid, timeout=timeout)
        except KletError as error:
            text = f"checkpointing of {path['namespace']}/{path['pod']}/{container} failed ({error})"
            return web.Response(status=500, text=text)
        body = msgspec.json.encode({"items": [str(archive)]})
        return web.Response(body=body, content_type="application/json")


def parse_timeout(given: Sequence[str]) -> int | None:
    """Return the seconds that a client gives: of several the last; 0 if there is none, None if it is no number."""
    if not given:
        return 0
    text = given[-1]
    if not _NUMBER.fullmatch(text) or not -_LARGEST - 1 <= int(text) <= _LARGEST:
        return None
    return int(text)
