"""Calls the certificate child: one short-lived process per request, so that the agent never imports cryptography."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from klet.aio.clock import Clock
from klet.certs.errors import CertificateRefused, MakerFailed
from klet.certs.messages import (
    ANSWER_LIMIT,
    Answer,
    CertificateFacts,
    ChildRefusal,
    Describe,
    KeyAndRequest,
    MakeAuthority,
    MakePodKey,
    MakeSelfSigned,
    MakeSigningRequest,
    Pair,
    PodCertificateKey,
    Purpose,
    Request,
    Signed,
    SignLeaf,
    SignRequest,
    Template,
)
from klet.certs.templates import canonical_ip
from klet.host.errors import ProcessError
from klet.host.processes import Completed, run_process

CHILD_COMMAND: Final = (sys.executable, "-P", "-m", "klet.certs.child")
# An RSA key takes a second or two on the smallest machines, and a starting node is a busy one.
CHILD_DEADLINE: Final = timedelta(seconds=60)

T = TypeVar("T", Pair, Signed, KeyAndRequest, PodCertificateKey, CertificateFacts)


class AuthorityFiles(Struct, frozen=True, kw_only=True):
    """Where an authority's certificate and key lie. Only the child reads the key."""

    certificate_file: Path
    key_file: Path


class CertificateMaker:
    """Makes and reads keys and certificates. Every method raises CertificateRefused or MakerFailed."""

    def __init__(
        self, *, clock: Clock, command: Sequence[str] = CHILD_COMMAND, deadline: timedelta = CHILD_DEADLINE
    ) -> None:
        self._clock = clock
        self._command = tuple(command)
        self._deadline = deadline

    async def self_signed(self, host: str, *, dns_names: Sequence[str] = (), ips: Sequence[str] = ()) -> Pair:
        """Make a self-signed serving pair for a host name or address: the leaf, then its authority."""
        ip = canonical_ip(host)
        request = MakeSelfSigned(
            host=host,
            dns_names=(*(() if ip else (host,)), *dns_names),
            ips=(*((ip,) if ip else ()), *ips),
            now=self._clock.now(),
        )
        return await self._ask(request, Pair)

    async def signing_request(self, template: Template, *, key: str = "") -> KeyAndRequest:
        """Return a signing request with a new ECDSA P-256 key, or with the PEM key given."""
        return await self._ask(MakeSigningRequest(template=template, key=key), KeyAndRequest)

    async def authority(self, common_name: str, *, lifetime: timedelta) -> Pair:
        """Return an authority of our own."""
        now = self._clock.now()
        return await self._ask(MakeAuthority(common_name=common_name, lifetime=lifetime, now=now), Pair)

    async def leaf(
        self, template: Template, *, authority: AuthorityFiles, purpose: Purpose, lifetime: timedelta
    ) -> Pair:
        """Return a pair signed by an authority, ending no later than it."""
        request = SignLeaf(
            authority_certificate_file=str(authority.certificate_file),
            authority_key_file=str(authority.key_file),
            template=template,
            purpose=purpose,
            lifetime=lifetime,
            now=self._clock.now(),
        )
        return await self._ask(request, Pair)

    async def sign(self, request: str, *, authority: AuthorityFiles, purpose: Purpose, lifetime: timedelta) -> str:
        """Return the certificate for a PEM signing request of a node; refused if it asks for what no node may have."""
        question = SignRequest(
            authority_certificate_file=str(authority.certificate_file),
            authority_key_file=str(authority.key_file),
            request=request,
            purpose=purpose,
            lifetime=lifetime,
            now=self._clock.now(),
        )
        return (await self._ask(question, Signed)).certificate

    async def describe(self, certificate: str, *, key: str = "") -> CertificateFacts:
        """Return the contents of a PEM certificate; the first one counts if there are several."""
        return await self._ask(Describe(certificate=certificate, key=key), CertificateFacts)

    async def pod_key(self, key_type: str, *, proof_of: bytes) -> PodCertificateKey:
        """Return a key for a pod, of a type that its volume names, with a signature of `proof_of`."""
        return await self._ask(MakePodKey(key_type=key_type, proof_of=proof_of), PodCertificateKey)

    async def _ask(self, request: Request, expected: type[T]) -> T:
        try:
            done = await run_process(
                self._command, timeout=self._deadline, stdin=msgspec.json.encode(request), output_limit=ANSWER_LIMIT
            )
        except ProcessError as error:
            raise MakerFailed(f"certificate child: {error}") from error
        answer = _read_answer(done)
        if isinstance(answer, ChildRefusal):
            raise CertificateRefused(answer.message, reason=answer.reason)
        if done.returncode != 0 or not isinstance(answer, expected):
            said = f"ended with code {done.returncode} and answered {type(answer).__name__}"
            raise MakerFailed(f"certificate child: {said}, not {expected.__name__}")
        return answer


def _read_answer(done: Completed) -> Answer:
    """Decode the answer. Of the child's other output only the last line of stderr is reported: never a key."""
    if done.truncated:
        raise MakerFailed(f"certificate child: said more than {ANSWER_LIMIT} bytes")
    try:
        answer: Answer = msgspec.json.decode(done.stdout, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        last = next(iter(done.stderr.decode(errors="replace").strip().splitlines()[-1:]), "nothing on standard error")
        raise MakerFailed(f"certificate child: ended with code {done.returncode} and no answer: {last}") from error
    return answer
