"""Lifecycle hooks: what runs after a container's start and before its stop (HandlerRunner).

A hook is tried once. Its error has upstream's words, which end up in the container's status.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.api.container import Container
from klet.api.handlers import ExecAction, HTTPGetAction, LifecycleHandler
from klet.api.pod import Pod
from klet.api.validation.rendering import go_quote
from klet.cri.errors import CriError
from klet.cri.port import CommandRunner
from klet.errors import KletError
from klet.host.http_client import BodyError, HttpError, PlainHttpError
from klet.host.http_response import HttpResponse
from klet.model.causes import CauseId, CauseRecorder
from klet.model.foreign_text import read_output, shorten
from klet.model.http_get import HOOK_AGENT, HeaderError, HttpGet, PortError, build_http_get
from klet.model.pods import LONGEST_GRACE, PodUID, format_pod, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import ContainerId, PodRuntimeStatus
from klet.runtime.metrics import HookMetrics
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

DECIDER = "runtime.hooks"


class HookError(KletError):
    """A hook that failed, with the text of the container's status."""


class HttpGetter(Protocol):
    """Sends a GET request; raises HttpError, or BodyError for an answer that broke off."""

    async def get(self, request: HttpGet, *, timeout: timedelta | None) -> HttpResponse: ...


class LivePods(Protocol):
    """Reads a pod from the runtime now: a hook may run before PLEG has seen the pod's address."""

    async def read(self, uid: PodUID) -> PodRuntimeStatus: ...


class HookTarget(Struct, frozen=True, kw_only=True):
    """The container whose hook is run."""

    pod: Pod
    container: Container
    id: ContainerId

    def __str__(self) -> str:
        return f"Container {go_quote(self.container.name)} in Pod {go_quote(format_pod(self.pod))}"


class HookRunner:
    """Runs hooks. Bounding them in time is the caller's business: they have no limit of their own."""

    def __init__(
        self,
        *,
        commands: CommandRunner,
        http: HttpGetter,
        pods: LivePods,
        recorder: CauseRecorder,
        clock: Clock,
        metrics: HookMetrics,
    ) -> None:
        self._metrics = metrics
        self._commands = commands
        self._http = http
        self._pods = pods
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock

    async def run(self, handler: LifecycleHandler, target: HookTarget, *, parent: CauseId | None) -> None:
        """Run one hook to its end, or raise HookError."""
        if handler.exec is not None:
            await self._exec(handler.exec, target)
        elif handler.http_get is not None:
            await self._get(handler.http_get, target, parent)
        elif handler.sleep is not None:
            await self._sleep(timedelta(seconds=min(handler.sleep.seconds, LONGEST_GRACE)))
        else:
            raise HookError(f"Cannot run handler: invalid handler: {describe_handler(handler)}")

    async def _sleep(self, length: timedelta) -> None:
        try:
            await self._clock.sleep(length)
        except asyncio.CancelledError:
            self._metrics.sleeps_cut_short.add()
            raise

    async def _exec(self, action: ExecAction, target: HookTarget) -> None:
        """Run the command as it stands: variables in it are not expanded."""
        request = cri.ExecSyncRequest(container_id=target.id, cmd=action.command, timeout=0)
        command = shorten(" ".join(action.command))
        output = ""
        try:
            answer = await self._commands.exec_sync(request)
        except CriError as error:
            why = str(error)
        else:
            if answer.exit_code == 0:
                return
            output = read_output(answer.stdout, answer.stderr)
            why = f"command '{command}' exited with {answer.exit_code}: {read_output(answer.stderr)}"
        shown = go_quote(output)
        raise HookError(f"Exec lifecycle hook ([{command}]) for {target} failed - error: {why}, message: {shown}")

    async def _get(self, action: HTTPGetAction, target: HookTarget, parent: CauseId | None) -> None:
        """Send the request. Any answer is a good answer; only none at all is a failure."""
        try:
            await self._ask(action, target, await self._address_of(action, target), parent)
        except BodyError as error:
            logger.debug("The answer to a hook broke off", extra={"pod": str(target), "error": str(error)})
        except (CriError, HeaderError, HttpError, PortError, _NoAddress) as error:
            path = shorten(action.path)
            raise HookError(f"HTTP lifecycle hook ({path}) for {target} failed - error: {error}") from error

    async def _address_of(self, action: HTTPGetAction, target: HookTarget) -> str:
        if action.host:
            return action.host
        seen = await self._pods.read(uid_of(target.pod))
        if not seen.ips:
            raise _NoAddress(f"failed to find networking container: {format_pod(target.pod)} has no IP address")
        return seen.ips[0]

    async def _ask(self, action: HTTPGetAction, target: HookTarget, ip: str, parent: CauseId | None) -> None:
        request = build_http_get(action, target.container, pod_ip=ip, agent=HOOK_AGENT)
        try:
            await self._http.get(request, timeout=None)
        except PlainHttpError as error:
            plain = build_http_get(without_tls(action), target.container, pod_ip=ip, agent=HOOK_AGENT)
            try:
                await self._http.get(plain, timeout=None)
            except HttpError:
                raise error from None
            self._metrics.http_fallbacks.add()
            where = request.address.authority
            text = f"request to HTTPS lifecycle hook {where} got HTTP response, retry with HTTP succeeded"
            self._decisions.for_pod(target.pod).record(Reason.LIFECYCLE_HTTP_FALLBACK, text, parent=parent)


def without_tls(action: HTTPGetAction) -> HTTPGetAction:
    """Return the same request in plain HTTP, without what must not be sent in the open."""
    headers = tuple(header for header in action.http_headers if header.name.lower() != "authorization")
    return replace(action, scheme="HTTP", http_headers=headers)


def describe_handler(handler: LifecycleHandler) -> str:
    """Return the kind of a handler, as messages and records name it."""
    for kind in ("exec", "http_get", "sleep", "tcp_socket"):
        if getattr(handler, kind) is not None:
            return {"http_get": "httpGet", "tcp_socket": "tcpSocket"}.get(kind, kind)
    return "none"


class _NoAddress(KletError):
    """The pod has no address to send a request to."""
