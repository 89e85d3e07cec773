"""Opens the tracer of a node whose configuration has `tracing`; the libraries for it are an optional extra."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from klet.config.sections import Tracing
from klet.model.tracing import Tracer

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_tracer(tracing: Tracing | None, *, host_name: str) -> AsyncIterator[Tracer | None]:
    """Return the tracer; None if nothing is to be traced. A node without the extra runs, and logs what to install."""
    if tracing is None:
        yield None
        return
    try:
        # Imported here: the libraries take memory, and most nodes trace nothing.
        from klet.tracing.provider import build_tracer  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        extra = {"error": str(error), "fix": "pip install 'klet[tracing]'"}
        logger.warning("tracing: nothing is traced: OpenTelemetry is not installed", extra=extra)
        yield None
        return
    tracer = build_tracer(
        endpoint=tracing.endpoint, rate_per_million=tracing.sampling_rate_per_million, host_name=host_name
    )
    try:
        yield tracer
    finally:
        await asyncio.to_thread(tracer.close)
