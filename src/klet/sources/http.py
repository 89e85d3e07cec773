"""Static pods from a URL that is polled (upstream's http source).

The last body is remembered before it is read, so a bad one is complained about once and the pods of the one before
stay. Bodies and credentials in the URL never reach a log.
"""

import logging
import ssl
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import aiohttp
from yarl import URL

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.static_pods import StaticOrigin
from klet.api.validation.options import STATIC_POD, PodValidationOptions
from klet.model.causes import CauseRecorder, FindingSubject
from klet.model.pods import HTTP_SOURCE
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import PodSink
from klet.sources.complaints import Complaints
from klet.sources.decode import MAX_MANIFEST, Origin, decode_pods
from klet.sources.errors import ManifestError, SourceError

logger = logging.getLogger(__name__)

DECIDER: Final = "sources.http"
DEADLINE: Final = timedelta(seconds=10)
LOUD_FAILURES: Final = 3
"""So many failures in a row are logged as warnings."""


def url_origin(
    url: str, *, node_name: str, prevent_api_references: bool = True, options: PodValidationOptions = STATIC_POD
) -> Origin:
    """Return the origin of the pods of a URL; credentials and query of the URL are not shown."""
    shown = URL(url).with_user(None).with_query(None).with_fragment(None)
    return Origin(
        kind=StaticOrigin.URL,
        location=url,
        node_name=node_name,
        shown=str(shown),
        prevent_api_references=prevent_api_references,
        options=options,
    )


class HttpSource:
    """Polls a URL for a pod or a list of pods."""

    def __init__(
        self,
        *,
        origin: Origin,
        headers: Mapping[str, Sequence[str]],
        every: timedelta,
        sink: PodSink,
        recorder: CauseRecorder,
        threads: Threads,
        clock: Clock,
    ) -> None:
        self._origin = origin
        self._shown = origin.shown or origin.location
        self._headers = [(name, value) for name, values in headers.items() for value in values]
        self._url = _without_login(origin.location, self._headers)
        self._every = every
        self._sink = sink
        self._threads = threads
        self._clock = clock
        self._complaints = Complaints(decider=DECIDER, recorder=recorder)
        self._failures = Failures(url=self._shown, recorder=recorder)
        self._last: bytes | None = None

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=DEADLINE.total_seconds())
        connector = aiohttp.TCPConnector(ssl=await self._threads.run(ssl.create_default_context))
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            headers=[*self._headers, *_UNCOMPRESSED],
            trust_env=True,
            # A small answer may unpack to any size before its limit can be looked at.
            auto_decompress=False,
        ) as session:
            while True:
                await self._poll(session)
                await self._clock.sleep(self._every)

    async def _poll(self, session: aiohttp.ClientSession) -> None:
        try:
            body = await self._fetch(session)
            await self._take(body)
        except ManifestError as error:
            self._failures.reset()
            self._complaints.about(
                self._shown, str(error), subject=FindingSubject(), consequence="pods stay as they are"
            )
        except SourceError as error:
            self._failures.count(str(error))
        else:
            self._failures.reset()

    async def _fetch(self, session: aiohttp.ClientSession) -> bytes:
        try:
            async with session.get(self._url) as response:
                if response.status != 200:
                    raise SourceError(f"{self._shown}: {response.status} {response.reason}")
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise SourceError(f"{self._shown}: the answer is compressed, which was not asked for")
                body = bytearray()
                async for chunk in response.content.iter_chunked(_CHUNK):
                    body += chunk
                    if len(body) > MAX_MANIFEST:
                        raise SourceError(f"{self._shown}: the manifest is longer than {MAX_MANIFEST} bytes")
                return bytes(body)
        except TimeoutError as error:
            raise SourceError(f"{self._shown}: no answer within {DEADLINE.seconds} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise SourceError(f"{self._shown}: {type(error).__name__}: {_reason(error)}") from error

    async def _take(self, body: bytes) -> None:
        if not body:
            self._last = None
            self._sink.set_pods(HTTP_SOURCE, ())
            raise SourceError(f"zero-length data received from {self._shown}")
        if body == self._last:
            return
        self._last = body
        pods = await self._threads.run(decode_pods, body, self._origin)
        self._complaints.settle(self._shown)
        self._sink.set_pods(HTTP_SOURCE, pods)


class Failures:
    """Logs failures in a row: first as warnings, then at debug level, and their end."""

    def __init__(self, *, url: str, recorder: CauseRecorder) -> None:
        self._url = url
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._count = 0

    def count(self, message: str) -> None:
        if self._count < LOUD_FAILURES:
            logger.warning("Manifests not read from the URL", extra={"error": message})
        elif self._count == LOUD_FAILURES:
            logger.warning("Manifests not read from the URL, dropping verbosity", extra={"error": message})
        else:
            logger.debug("Manifests not read from the URL", extra={"error": message})
        if self._count == 0:
            text = f"{message}; the pods stay as they are"
            self._decisions.for_node().record(Reason.SOURCE_UNAVAILABLE, text, next_step="an answer of the URL")
        self._count += 1

    def reset(self) -> None:
        if self._count:
            logger.info("Manifests read from the URL again", extra={"url": self._url, "failures": self._count})
            text = f"{self._url} answers again after {self._count} failures"
            self._decisions.for_node().record(Reason.SOURCE_AVAILABLE, text)
        self._count = 0


_CHUNK: Final = 64 * 1024
_UNCOMPRESSED: Final = (("Accept-Encoding", "identity"),)


def _reason(error: Exception) -> str:
    # The texts of these repeat the URL, credentials and all, unless the system's reason is taken.
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or "connection failed"
    if isinstance(error, OSError):
        return error.strerror or "failed"
    return "not understood"


def _without_login(url: str, headers: Sequence[tuple[str, str]]) -> URL:
    """Return the URL without its login if there is an Authorization header, as in Go; aiohttp refuses both."""
    has_header = any(name.lower() == "authorization" for name, _ in headers)
    return URL(url).with_user(None) if has_header else URL(url)
