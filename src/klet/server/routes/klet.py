"""`/klet/v1/…`: what only klet has. Cause records, the causal timeline of a pod, pods that are on their way out, the
machine and who has what of it.
"""

from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import datetime

from aiohttp import web
from msgspec import Struct

from klet.api import klet_v1
from klet.api.klet_v1_topology import MachineTopology
from klet.server.roles import ServedJournal, ServedPods
from klet.server.routes.pods import pod_list


class KletRoutes:
    """Serves the agent's decisions and their causes, and what is still there."""

    def __init__(self, *, pods: ServedPods, journal: ServedJournal, topology: Callable[[], MachineTopology]) -> None:
        self._pods = pods
        self._journal = journal
        self._topology = topology

    async def list_pods(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        return pod_list((*self._pods.terminating(), *self._pods.pods()))

    async def read_journal(self, request: web.Request) -> web.StreamResponse:
        """Send JSON lines; with `follow` the connection stays open and each new record follows at once."""
        query = request.query
        read = self._journal.follow if query.get("follow", "false") not in {"false", "0"} else self._journal.records
        try:
            since = datetime.fromisoformat(query["since"]) if query.get("since") else None
        except ValueError:
            return web.Response(status=400, text=f'since: "{query["since"]}" is not an RFC 3339 time with its zone')
        if since is not None and since.tzinfo is None:
            return web.Response(status=400, text=f'since: "{query["since"]}" has no zone; end it with Z or an offset')
        found = read(namespace=query.get("namespace", ""), name=query.get("name", ""), since=since)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        # A client that has seen enough goes away at any moment.
        with suppress(ConnectionResetError):
            await response.prepare(request)
            async with aclosing(found) as records:
                async for record in records:
                    await response.write(klet_v1.encode(record) + b"\n")
            await response.write_eof()
        return response

    async def explain_node(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        return _answer(await self._journal.explain_node())

    async def show_topology(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        return _answer(self._topology())

    async def list_recorded(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        return _answer(await self._journal.pods())

    async def explain_pod(self, request: web.Request) -> web.Response:
        path = request.match_info
        found = await self._journal.explain(namespace=path["namespace"], name=path["pod"])
        if found is None:
            return web.Response(status=404, text=f'nothing is recorded about pod "{path["namespace"]}/{path["pod"]}"')
        return _answer(found)


def _answer(answer: Struct) -> web.Response:
    return web.Response(body=klet_v1.encode(answer), content_type="application/json")
