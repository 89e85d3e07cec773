"""A cluster's controllers for certificates, for tests: they approve what nodes ask for, and sign it by the child."""

import base64
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from klet.api.certificates import CertificateSigningRequest
from klet.api.codec import convert
from klet.api.kinds import kind_of
from klet.api.meta import WatchEventType
from klet.certs.errors import CertificateRefused
from klet.certs.maker import AuthorityFiles, CertificateMaker
from klet.certs.messages import Purpose
from klet.certs.templates import SIGNERS
from klet.embedded.refusals import resource_of
from klet.embedded.registry import ObjectTarget
from klet.embedded.server import EmbeddedApi

logger = logging.getLogger(__name__)

KIND: Final = kind_of(CertificateSigningRequest)
_PURPOSES: Final[Mapping[str, Purpose]] = {signer: purpose for purpose, signer in SIGNERS.items()}


class SigningVerdict(StrEnum):
    """What to do with a request."""

    SIGN = "sign"
    DENY = "deny"
    FAIL = "fail"
    LEAVE = "leave"


class ClusterSigner:
    """Decides on every open request and signs with one authority."""

    def __init__(
        self,
        *,
        api: EmbeddedApi,
        maker: CertificateMaker,
        authority: AuthorityFiles,
        lifetime: timedelta,
        decide: Callable[[CertificateSigningRequest], SigningVerdict] = lambda _: SigningVerdict.SIGN,
    ) -> None:
        self._api = api
        self._maker = maker
        self._authority = authority
        self._lifetime = lifetime
        self._decide = decide

    async def run(self) -> None:
        """Decide on what is there and on what comes, until cancelled."""
        with self._api.store.changes() as changes:
            for obj in self._api.store.all(resource_of(KIND)):
                await self._consider(obj)
            async for change in changes.items():
                if change.key.resource == resource_of(KIND) and change.type is WatchEventType.ADDED:
                    await self._consider(change.obj)

    async def _consider(self, obj: Mapping[str, Any]) -> None:
        request = convert(CertificateSigningRequest, obj)
        if request.status.conditions:
            return
        name = request.metadata.name
        match self._decide(request):
            case SigningVerdict.SIGN:
                self._write(name, "approval", conditions=_condition("Approved", "AutoApproved"))
                await self._sign(request)
            case SigningVerdict.DENY:
                self._write(name, "approval", conditions=_condition("Denied", "NotWanted", "the node is not known"))
            case SigningVerdict.FAIL:
                self._write(name, "approval", conditions=_condition("Approved", "AutoApproved"))
                self._write(name, "status", conditions=_condition("Failed", "SignerValidationFailure", "no"))
            case SigningVerdict.LEAVE:
                logger.debug("A signing request is left alone", extra={"request": name})

    async def _sign(self, request: CertificateSigningRequest) -> None:
        name = request.metadata.name
        try:
            certificate = await self._maker.sign(
                request.spec.request.decode(),
                authority=self._authority,
                purpose=_PURPOSES[request.spec.signer_name],
                lifetime=self._lifetime,
            )
        except CertificateRefused as error:
            self._write(name, "status", conditions=_condition("Failed", "SignerValidationFailure", str(error)))
        else:
            self._write(name, "status", certificate=base64.b64encode(certificate.encode()).decode())

    def _write(self, name: str, subresource: str, **status: object) -> None:
        target = ObjectTarget(KIND, "", name, subresource)
        self._api.registry.replace(target, {"metadata": {"name": name}, "status": status})


def _condition(kind: str, reason: str, message: str = "") -> list[dict[str, str]]:
    return [{"type": kind, "status": "True", "reason": reason, "message": message}]
