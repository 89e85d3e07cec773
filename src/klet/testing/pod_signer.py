"""A signer of pod certificates, for tests: it checks a request as an API server does, and signs or refuses it."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_der_public_key
from cryptography.x509.oid import NameOID
from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.certificates import PodCertificateRequest, PodCertificateRequestStatus
from klet.api.codec import to_builtins
from klet.api.meta import Condition
from klet.api.times import Time
from klet.kube.client import KubeClient, PatchType
from klet.kube.informer import Informer

PodPublicKey: TypeAlias = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class Sign(Struct, frozen=True):
    """Issue a certificate that lives so long, and is to be renewed so long after its beginning."""

    lifetime: timedelta = timedelta(hours=1)
    refresh_after: timedelta = timedelta(minutes=30)


class Refuse(Struct, frozen=True):
    """Deny the request, or fail."""

    condition: str
    reason: str
    message: str


Decision: TypeAlias = Sign | Refuse | None


class PodSigner:
    """Decides on every open request of one signer name."""

    def __init__(
        self,
        *,
        name: str,
        client: KubeClient,
        requests: Informer[PodCertificateRequest],
        clock: Clock,
        decide: Callable[[PodCertificateRequest], Decision] = lambda _: Sign(),
    ) -> None:
        self._name = name
        self._client = client
        self._requests = requests
        self._clock = clock
        self._decide = decide
        self._key = generate_private_key(SECP256R1())
        self._decided: set[str] = set()
        self.issued: list[str] = []
        """The certificates, in order."""

    async def run(self) -> None:
        """Decide until cancelled; the informer runs apart."""
        with self._requests.changes() as changes:
            while True:
                for request in self._requests.all():
                    await self._consider(request)
                await changes.get()

    async def _consider(self, request: PodCertificateRequest) -> None:
        meta = request.metadata
        if request.spec.signer_name != self._name or request.status.conditions or meta.uid in self._decided:
            return
        public = check_proof(request)
        decision = self._decide(request)
        if decision is None:
            return
        self._decided.add(meta.uid)
        status = self._sign(request, public, decision) if isinstance(decision, Sign) else self._refuse(decision)
        patch = {"status": to_builtins(status)}
        await self._client.patch(
            PodCertificateRequest, meta.name, meta.namespace, patch=patch, how=PatchType.MERGE, subresource="status"
        )

    def _refuse(self, decision: Refuse) -> PodCertificateRequestStatus:
        return PodCertificateRequestStatus(
            conditions=(self._condition(decision.condition, decision.reason, decision.message),)
        )

    def _sign(
        self, request: PodCertificateRequest, public: PodPublicKey, decision: Sign
    ) -> PodCertificateRequestStatus:
        begin = self._clock.now().replace(microsecond=0)
        end = begin + decision.lifetime
        spec = request.spec
        text = self._certificate(f"{request.metadata.namespace}/{spec.pod_name}", public, begin, end)
        self.issued.append(text)
        return PodCertificateRequestStatus(
            conditions=(self._condition("Issued", "Signed", "signed in a test"),),
            certificate_chain=text,
            not_before=Time.of(begin),
            not_after=Time.of(end),
            begin_refresh_at=Time.of(begin + decision.refresh_after),
        )

    def _certificate(self, name: str, public: PodPublicKey, begin: datetime, end: datetime) -> str:
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pod signer")])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = x509.CertificateBuilder(
            issuer_name=issuer,
            subject_name=subject,
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=begin,
            not_valid_after=end,
        )
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM).decode()

    def _condition(self, kind: str, reason: str, message: str) -> Condition:
        return Condition(
            type=kind, status="True", reason=reason, message=message, last_transition_time=Time.of(self._clock.now())
        )


def check_proof(request: PodCertificateRequest) -> PodPublicKey:
    """Return the key of a request; raises InvalidSignature if the requester has not got it."""
    spec = request.spec
    content = spec.pod_uid.encode()
    key = load_der_public_key(spec.pkix_public_key)
    if isinstance(key, RSAPublicKey):
        key.verify(spec.proof_of_possession, content, PSS(mgf=MGF1(SHA256()), salt_length=PSS.AUTO), SHA256())
    elif isinstance(key, EllipticCurvePublicKey):
        key.verify(spec.proof_of_possession, content, ECDSA(SHA256()))
    elif isinstance(key, Ed25519PublicKey):
        key.verify(spec.proof_of_possession, content)
    else:
        raise TypeError(f"a pod has no key of type {type(key).__name__}")
    return key


def in_turn(*decisions: Decision) -> Callable[[PodCertificateRequest], Decision]:
    """Return each decision once, and the last one from then on."""
    left = iter(decisions[:-1])

    def decide(_: PodCertificateRequest) -> Decision:
        return next(left, decisions[-1])

    return decide
