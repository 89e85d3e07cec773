"""`/logs/`: the files of the node's log directory, and the logs of its services."""

from typing import Final

from aiohttp import web

from klet.server.file_server import FileServer, refuse
from klet.server.node_log_query import QueryRefusal, parse_node_log_query, refuse_file, validate_node_log_query
from klet.server.node_logs import NodeLogs

PREFIX: Final = "/logs/"


class NodeLogRoutes:
    """Files as a file server shows them; queries only where they are switched on (gate NodeLogQuery)."""

    def __init__(self, *, files: FileServer, queries: NodeLogs | None) -> None:
        self._files = files
        self._queries = queries

    async def show(self, request: web.Request) -> web.StreamResponse:
        if self._queries is None:
            return await self._files.answer(request, prefix=PREFIX)
        query = parse_node_log_query({name: request.query.getall(name) for name in request.query})
        if query is None:
            return await self._files.answer(request, prefix=PREFIX)
        if isinstance(query, QueryRefusal):
            return refuse(query.status, query.text)
        if request.path != PREFIX:
            return refuse(406, "path not allowed in query mode")
        if (refusal := validate_node_log_query(query)) is not None:
            return refuse(refusal.status, refusal.text)
        if query.services:
            return await self._queries.answer(request, query)
        file = query.files[0]
        if missing := await self._files.find_missing(file):
            refusal = refuse_file(file, missing)
            return refuse(refusal.status, refusal.text)
        return await self._files.answer_file(request, file)
