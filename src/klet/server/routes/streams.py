"""`/exec`, `/attach`, `/portForward` and `/run`: reaching into a pod."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from klet.api.pod import Pod
from klet.cri.errors import CriError, CriNotFound, ResourceExhausted
from klet.cri.port import RuntimeService
from klet.server.auth.identity import without_token
from klet.server.connection import HttpConnection, connection_of
from klet.server.http1 import RequestHead
from klet.server.roles import ServedPods
from klet.server.runtime_pods import RuntimePods
from klet.server.streaming.options import BadOptions, StreamOptions, read_ports, read_streams
from klet.server.streaming.proxy import StreamEndpoint, StreamProxy, StreamProxyError, read_endpoint
from klet.wire import cri_v1_pb2 as cri

_SWITCHING: Final = 101
_FIRST_ERROR: Final = 400
_RETRY_AFTER: Final = {"Retry-After": "60"}
_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}
_NOT_PASSED_BACK: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "upgrade"})


class StreamRefused(Exception):
    """Ends a request with an answer."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(body)
        self.status = status
        self.body = body


class StreamRoutes:
    """Runs commands and forwards ports, in pods of this node."""

    def __init__(self, *, pods: ServedPods, running: RuntimePods, runtime: RuntimeService) -> None:
        self._pods = pods
        self._running = running
        self._runtime = runtime

    async def exec(self, request: web.Request) -> web.StreamResponse:
        return await _answer(request, _streaming(self._exec_url))

    async def attach(self, request: web.Request) -> web.StreamResponse:
        return await _answer(request, _streaming(self._attach_url))

    async def port_forward(self, request: web.Request) -> web.StreamResponse:
        return await _answer(request, _streaming(self._port_forward_url))

    async def run(self, request: web.Request) -> web.StreamResponse:
        return await _answer(request, self._run)

    async def _exec_url(self, request: web.Request) -> str:
        options = _streams(request)
        pod = self._pod(request)
        wanted = cri.ExecRequest(
            container_id=await self._container(request, pod),
            cmd=request.query.getall("command", []),
            tty=options.tty,
            stdin=options.stdin,
            stdout=options.stdout,
            stderr=options.stderr,
        )
        return (await self._runtime.exec(wanted)).url

    async def _attach_url(self, request: web.Request) -> str:
        options = _streams(request)
        pod = self._pod(request)
        name = request.match_info["container"]
        container_id = await self._find_running(request, pod)
        if container_id is None:
            raise StreamRefused(500, f"container {name} not found in pod {pod.metadata.name}_{pod.metadata.namespace}")
        tty = _has_terminal(pod, name, asked=options.tty)
        wanted = cri.AttachRequest(
            container_id=container_id,
            tty=tty,
            stdin=options.stdin,
            stdout=options.stdout,
            stderr=options.stderr and not tty,
        )
        return (await self._runtime.attach(wanted)).url

    async def _port_forward_url(self, request: web.Request) -> str:
        connection = connection_of(request)
        ports: tuple[int, ...] | BadOptions = ()
        if connection is not None and connection.upgrade is not None and _is_websocket(connection.upgrade):
            ports = read_ports(request.query.getall("port", []))
        if isinstance(ports, BadOptions):
            raise StreamRefused(400, ports.message)
        pod = self._pod(request)
        if not self._is_meant(request, pod):
            raise StreamRefused(404, "pod not found")
        sandbox = await self._running.ready_sandbox(pod.metadata.uid)
        if sandbox is None:
            full_name = f"{pod.metadata.name}_{pod.metadata.namespace}"
            raise StreamRefused(500, f'failed to find sandboxID for pod "{full_name}": it has no sandbox that is ready')
        answer = await self._runtime.port_forward(cri.PortForwardRequest(pod_sandbox_id=sandbox, port=ports))
        return answer.url

    async def _run(self, request: web.Request) -> web.StreamResponse:
        pod = self._pod(request)
        container_id = await self._container(request, pod)
        command = request.query.get("cmd", "").split(" ")
        answer = await self._runtime.exec_sync(cri.ExecSyncRequest(container_id=container_id, cmd=command))
        if answer.exit_code:
            said = answer.stderr.decode(errors="replace")
            raise StreamRefused(500, f"command '{' '.join(command)}' exited with {answer.exit_code}: {said}")
        return web.Response(body=answer.stdout + answer.stderr, content_type="application/json")

    def _pod(self, request: web.Request) -> Pod:
        pod = self._pods.find(request.match_info["namespace"], request.match_info["pod"])
        if pod is None:
            raise StreamRefused(404, "pod does not exist")
        return pod

    async def _container(self, request: web.Request, pod: Pod) -> str:
        container_id = await self._find_running(request, pod)
        if container_id is None:
            raise StreamRefused(500, f'container not found ("{request.match_info["container"]}")')
        return container_id

    async def _find_running(self, request: web.Request, pod: Pod) -> str | None:
        if not self._is_meant(request, pod):
            return None
        return await self._running.running_container(pod.metadata.uid, request.match_info["container"])

    def _is_meant(self, request: web.Request, pod: Pod) -> bool:
        """Return whether a UID in the path is the pod's, or that of its mirror, which is all that the API server shows.

        With the UID of another pod a right to reach into this one would be a right to reach into any.
        """
        return self._pods.runtime_uid(request.match_info.get("uid", pod.metadata.uid)) == pod.metadata.uid


class SentResponse(web.StreamResponse):
    """Stands for an answer that went past aiohttp."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:  # noqa: ARG002 - aiohttp's signature
        return None

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - aiohttp's signature
        return None


def _streaming(
    find: Callable[[web.Request], Awaitable[str]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Join the client with what the runtime has at the URL that is found."""

    async def stream(request: web.Request) -> web.StreamResponse:
        url = await find(request)
        connection = connection_of(request)
        if connection is None or connection.upgrade is None:
            raise StreamRefused(500, "Upgrade request required\n")
        return await _join(connection, connection.upgrade, read_endpoint(url))

    return stream


async def _join(connection: HttpConnection, upgrade: RequestHead, endpoint: StreamEndpoint) -> web.StreamResponse:
    """Let the runtime answer, and leave the two alone if it agrees."""
    proxy = StreamProxy(connection)
    try:
        head = _forwarded(upgrade, endpoint, connection.transport, body=connection.upgrade_body)
        answer = await proxy.ask(endpoint, head, connection.upgrade_body)
        if answer.status == _SWITCHING:
            proxy.join(answer, connection.take_over(proxy))
            await proxy.until_ended()
            response = SentResponse()
            response.force_close()
            return response
        if answer.status < _FIRST_ERROR:
            raise StreamProxyError(f"invalid upgrade response: status code {answer.status}")
        body = await proxy.read_rest()
        kept = [each for each in answer.headers if each[0].lower() not in _NOT_PASSED_BACK]
        return web.Response(status=answer.status, body=body, headers=kept)
    finally:
        proxy.close()


def _forwarded(
    upgrade: RequestHead, endpoint: StreamEndpoint, transport: asyncio.BaseTransport, *, body: bytes
) -> RequestHead:
    """Return the client's own head for the runtime: the address is the runtime's, credentials stay here."""
    headers = []
    seen = list(upgrade.all("x-forwarded-for"))
    for name, value in upgrade.headers:
        match name.lower():
            case "authorization" | "x-forwarded-for" | "expect" | "content-length" | "transfer-encoding" | "trailer":
                continue  # what was expected has been given here, and the body is sent with a length
            case "sec-websocket-protocol":
                headers.append((name, without_token(value)))
            case _:
                headers.append((name, value))
    if body:
        headers.append(("Content-Length", str(len(body))))
    peer = transport.get_extra_info("peername")
    if isinstance(peer, tuple):
        seen.append(peer[0])
    if seen:
        headers.append(("X-Forwarded-For", ", ".join(seen)))
    return RequestHead(upgrade.method, endpoint.target, "1.1", tuple(headers))


async def _answer(
    request: web.Request, handle: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn what goes wrong into upstream's answers."""
    try:
        return await handle(request)
    except StreamRefused as refused:
        return web.Response(status=refused.status, text=refused.body)
    except CriNotFound as error:
        return web.Response(status=404, text=str(error))
    except ResourceExhausted as error:
        return web.Response(status=429, text=str(error), headers=_RETRY_AFTER)
    except CriError as error:
        return web.Response(status=500, text=str(error))
    except StreamProxyError as error:
        return web.Response(status=500, text=f"{error}\n", headers=_NOSNIFF)


def _streams(request: web.Request) -> StreamOptions:
    options = read_streams(request.query)
    if isinstance(options, BadOptions):
        raise StreamRefused(400, options.message)
    return options


def _has_terminal(pod: Pod, name: str, *, asked: bool) -> bool:
    """Return whether the container has a terminal: an attached client gets that, whatever it asked for."""
    terminals = {spec.name: spec.tty for spec in (*pod.spec.containers, *pod.spec.init_containers)}
    terminals |= {spec.name: spec.tty for spec in pod.spec.ephemeral_containers}
    return terminals.get(name, asked)


def _is_websocket(head: RequestHead) -> bool:
    return any(value.lower() == "websocket" for value in head.all("upgrade"))
