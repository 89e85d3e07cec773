"""Signing requests at the API server: created, read and watched."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from klet.api.certificates import CertificateSigningRequest
from klet.certs.errors import RequestExists, SigningFailed
from klet.certs.requests import RequestOutcome
from klet.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound, TryLater, Unauthorized, Unreachable
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope

_PASSING: Final = (Unreachable, TryLater)
_IN_ORDER: Final = (AlreadyExists, Unauthorized, Forbidden, NotFound)
"""Refusals that show a server at work."""


class ApiSigning:
    """Signing requests. `choose` gives the client whose credentials are good at the moment."""

    def __init__(self, *, choose: Callable[[], InformerSettings]) -> None:
        self._choose = choose

    async def create(self, request: CertificateSigningRequest) -> CertificateSigningRequest:
        with _errors("create"):
            return await self._choose().client.create(request)

    async def get(self, name: str) -> CertificateSigningRequest:
        with _errors("retrieve"):
            return await self._choose().client.get(CertificateSigningRequest, name)

    async def follow(
        self, name: str, judge: Callable[[CertificateSigningRequest | None], RequestOutcome | None]
    ) -> RequestOutcome:
        """Watch this one object until it is judged: the watch outlives connections and servers."""
        scope = WatchScope(selectors=(("fieldSelector", f"metadata.name={name}"),))
        informer = Informer(struct=CertificateSigningRequest, scope=scope, settings=self._choose())
        outcome: RequestOutcome | None = None
        async with asyncio.TaskGroup() as group:
            following = group.create_task(informer.run())
            with informer.changes() as changes:
                while outcome is None:
                    await changes.get()
                    # A change of an object that is not there is its deletion. Before the first change it may not
                    # have come to the server's cache yet.
                    outcome = judge(informer.get(name))
            following.cancel()
        return outcome


@contextmanager
def _errors(verb: str) -> Iterator[None]:
    try:
        yield
    except KubeError as error:
        cls = RequestExists if isinstance(error, AlreadyExists) else SigningFailed
        raise cls(
            f"cannot {verb} certificate signing request: {error}",
            may_pass=isinstance(error, _PASSING),
            is_server_well=isinstance(error, _IN_ORDER),
        ) from error
