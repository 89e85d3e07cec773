"""Signing requests at the API server: posted, followed, judged (client-go's csr helpers).

The request of a rotation gets a name from the server; that of a bootstrap has one made of its key, so that a restart
finds it again.
"""

import asyncio
import base64
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from klet.api.certificates import CertificateSigningRequest, CertificateSigningRequestSpec
from klet.api.meta import ObjectMeta
from klet.certs.errors import NotIssued, RequestExists, SigningFailed
from klet.certs.messages import CertificateFacts, KeyAndRequest, Purpose, Template
from klet.certs.templates import SIGNERS, build_bootstrap_name, build_usages
from klet.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound, TryLater, Unauthorized, Unreachable
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.model.hidden_fields import HidesFields

logger = logging.getLogger(__name__)

_STEM: Final = "csr-"
_MARGIN: Final = "-----"
_PASSING: Final = (Unreachable, TryLater)
_IN_ORDER: Final = (AlreadyExists, Unauthorized, Forbidden, NotFound)
"""Refusals that show a server at work."""


class Issued(Struct, frozen=True):
    """The certificate was issued."""

    certificate: str


class RequestFailed(Struct, frozen=True):
    """The request was denied, has failed or is gone: there will be no certificate."""

    reason: str


RequestOutcome: TypeAlias = Issued | RequestFailed


class Posted(HidesFields, frozen=True, kw_only=True):
    """A request that the API server has, and the key it is for."""

    HIDDEN = frozenset({"key"})

    name: str
    uid: str
    key: str


class RequestMaker(Protocol):
    """The part of the maker that is needed here."""

    async def signing_request(self, template: Template, *, key: str = "") -> KeyAndRequest: ...

    async def describe(self, certificate: str) -> CertificateFacts: ...


class SigningApi(Protocol):
    """Signing requests at the API server. To create and to get one raises SigningFailed."""

    async def create(self, request: CertificateSigningRequest) -> CertificateSigningRequest: ...

    async def get(self, name: str) -> CertificateSigningRequest: ...

    async def follow(
        self, name: str, judge: Callable[[CertificateSigningRequest | None], RequestOutcome | None]
    ) -> RequestOutcome:
        """Judge each state of a request until there is an outcome, whether the server is there or not."""
        ...


def judge_request(request: CertificateSigningRequest | None, posted: Posted) -> RequestOutcome | None:
    """Return what has become of a request; None while it is open. No request: one that was there is gone."""
    if request is None:
        return RequestFailed(f'csr "{posted.name}" was deleted')
    if request.metadata.uid != posted.uid:
        return RequestFailed(f'csr "{posted.name}" changed UIDs')
    conditions = {each.type: each for each in request.status.conditions}
    for kind, said in (("Denied", "is denied"), ("Failed", "failed")):
        if (found := conditions.get(kind)) is not None:
            return RequestFailed(
                f"certificate signing request {said}, reason: {found.reason}, message: {found.message}"
            )
    if "Approved" not in conditions or not request.status.certificate:
        return None
    return Issued(request.status.certificate.decode("ascii", errors="replace"))


class CertificateRequester:
    """Asks the API server for the certificates of one purpose."""

    def __init__(self, *, purpose: Purpose, maker: RequestMaker, api: SigningApi) -> None:
        self._purpose = purpose
        self._maker = maker
        self._api = api

    @property
    def purpose(self) -> Purpose:
        return self._purpose

    async def post(self, template: Template) -> Posted:
        """Ask with a new key. Raises SigningFailed, and what the maker raises."""
        made = await self._maker.signing_request(template)
        request = await self._api.create(self._build(ObjectMeta(generate_name=_STEM), made))
        return Posted(name=request.metadata.name, uid=request.metadata.uid, key=made.key)

    async def make(self, template: Template, *, key: str = "") -> KeyAndRequest:
        """Return a request that is not posted yet, with a new key or the one given."""
        return await self._maker.signing_request(template, key=key)

    async def post_again(self, template: Template, made: KeyAndRequest, *, now: datetime) -> Posted:
        """Post a request with an old key, or use the one that exists for it. Raises SigningFailed or NotIssued."""
        usages = build_usages(self._purpose, made.key_algorithm)
        name = build_bootstrap_name(made.public_key, template, usages)
        wanted = self._build(ObjectMeta(name=name), made)
        try:
            request = await self._api.create(wanted)
        except RequestExists:
            request = await self._api.get(name)
            await self._check_compatible(request, made, now=now)
            logger.info("The signing request of an earlier start is used again", extra={"request": name})
        return Posted(name=name, uid=request.metadata.uid, key=made.key)

    async def describe(self, certificate: str) -> CertificateFacts:
        """Return the contents of a certificate. Raises what the maker raises."""
        return await self._maker.describe(certificate)

    async def outcome(self, posted: Posted) -> RequestOutcome:
        """Wait for the end of a request, however long it takes."""
        return await self._api.follow(posted.name, lambda request: judge_request(request, posted))

    def _build(self, metadata: ObjectMeta, made: KeyAndRequest) -> CertificateSigningRequest:
        return CertificateSigningRequest(
            metadata=metadata,
            spec=CertificateSigningRequestSpec(
                request=made.request.encode(),
                signer_name=SIGNERS[self._purpose],
                usages=build_usages(self._purpose, made.key_algorithm),
            ),
        )

    async def _check_compatible(self, found: CertificateSigningRequest, made: KeyAndRequest, *, now: datetime) -> None:
        signer = SIGNERS[self._purpose]
        rule = ""
        if found.spec.signer_name != signer:
            rule = f"csr signerNames differ: new {signer!r}, orig: {found.spec.signer_name!r}"
        # The key is part of the request as it is. Hiding it elsewhere gains nothing: a certificate for another
        # key is not stored.
        elif made.public_key not in _der(found.spec.request):
            rule = "csr public keys differ"
        elif found.status.certificate:
            facts = await self._maker.describe(found.status.certificate.decode("ascii", errors="replace"))
            if now > facts.chain_not_after:
                rule = f"one of the certificates for the CSR has expired: {facts.chain_not_after}"
        if rule:
            name = found.metadata.name
            raise NotIssued(f"retrieved csr is not compatible: {rule}; remove it: kubectl delete csr {name}")


def _der(pem: bytes) -> bytes:
    lines = pem.decode("ascii", errors="replace").splitlines()
    return base64.b64decode("".join(line for line in lines if not line.startswith(_MARGIN)))


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
