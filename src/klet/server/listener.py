"""Serves the agent's HTTP API on a Unix socket that only its owner may open."""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from aiohttp import web

from klet.errors import KletError
from klet.server.request_log import request_logger

logger = logging.getLogger(__name__)

CLOSE_WITHIN = 2.0
BACKLOG = 1024
"""How many clients may come while the loop is busy; a Unix socket turns away the next at once."""


class ListenError(KletError):
    """The socket cannot be served."""


class Routes(Protocol):
    """A family of paths."""

    def add_to(self, router: web.UrlDispatcher) -> None: ...


class SocketListener:
    """The API on `<root>/klet.sock`, for the commands at the node."""

    def __init__(self, *, path: Path, routes: Sequence[Routes]) -> None:
        self._path = path
        self._routes = routes

    async def run(self) -> None:
        application = web.Application()
        for routes in self._routes:
            routes.add_to(application.router)
        runner = web.AppRunner(
            application,
            access_log=None,
            logger=request_logger(),
            shutdown_timeout=CLOSE_WITHIN,
            handler_cancellation=True,
        )
        listener = self._bind()
        try:
            await runner.setup()
            await web.SockSite(runner, listener, backlog=BACKLOG).start()
            logger.info("Serving the agent's API", extra={"socket": str(self._path)})
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
            listener.close()
            self._path.unlink(missing_ok=True)

    def _bind(self) -> socket.socket:
        """Bind with mode 0600 from the first instant, in place of the socket of an earlier life.

        Under its own name it appears only when it listens: whoever sees it come can connect.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.settimeout(0)
            coming = self._path.with_suffix(".new")
            coming.unlink(missing_ok=True)
            # fchmod before bind sets the mode that the socket file is created with.
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(str(coming))
            listener.listen(BACKLOG)
            coming.rename(self._path)
        except OSError as error:
            listener.close()
            raise ListenError(f"cannot listen on {self._path}: {error.strerror}") from error
        return listener
