"""`/pods` and `/containerLogs`: the pods of the node, and the logs of their containers."""

from collections.abc import Sequence
from contextlib import aclosing, suppress

from aiohttp import web

from klet.api.codec import encode
from klet.api.klet_v1 import PodListing
from klet.api.pod import Pod
from klet.errors import KletError
from klet.server.log_query import LogRefusal, choose_instance, has_container, parse_log_query, refuse_stream
from klet.server.roles import ServedLogs, ServedPods


class PodRoutes:
    """Pods and their logs."""

    def __init__(self, *, pods: ServedPods, logs: ServedLogs, splits_streams: bool = False) -> None:
        self._pods = pods
        self._logs = logs
        self._splits_streams = splits_streams

    async def list_pods(self, request: web.Request) -> web.StreamResponse:
        return not_acceptable(request) or pod_list(self._pods.pods())

    async def read_logs(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info
        query = parse_log_query(request.query)
        if isinstance(query, LogRefusal):
            return _refuse(query)
        pod = self._pods.find(path["namespace"], path["pod"])
        if pod is None:
            return _refuse(LogRefusal(404, f'pod "{path["pod"]}" does not exist'))
        refusal = refuse_stream(query, splits_streams=self._splits_streams)
        if refusal is not None and has_container(pod, path["container"]):
            return _refuse(refusal)
        instance = choose_instance(pod, path["container"], previous=query.previous)
        if isinstance(instance, LogRefusal):
            return _refuse(instance)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        # A client that has seen enough goes away at any moment.
        with suppress(ConnectionResetError):
            await response.prepare(request)
            try:
                async with aclosing(self._logs.read(instance, query)) as chunks:
                    async for chunk in chunks:
                        await response.write(chunk)
            except KletError as error:
                await response.write(str(error).encode())  # the headers are sent: only the text is left to report it
            await response.write_eof()
        return response


def pod_list(pods: Sequence[Pod]) -> web.Response:
    """Return pods as the kubelet lists them: an empty list is null, as Go writes it."""
    body = encode(PodListing(items=tuple(pods) or None)) + b"\n"
    return web.Response(body=body, content_type="application/json")


def not_acceptable(request: web.Request) -> web.Response | None:
    """Return the refusal of a client that does not take JSON."""
    if accepts_json(request.headers.get("Accept", "")):
        return None
    return web.Response(status=406, text="406: Not Acceptable\n\nAvailable representations: application/json")


def accepts_json(accept: str) -> bool:
    """Return whether an Accept header lets JSON pass; its weights do not matter, as in upstream's router."""
    kinds = {part.partition(";")[0].strip() for part in accept.split(",")}
    return not accept or bool(kinds & {"*/*", "application/json"})


def _refuse(refusal: LogRefusal) -> web.Response:
    return web.Response(status=refusal.status, text=refusal.body)
