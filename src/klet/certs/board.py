"""The certificate of one kind that is in force, for the parts that present or watch it."""

from datetime import datetime

from klet.aio.broadcast import Broadcast, Subscription
from klet.certs.pairs import CertificatePair
from klet.certs.rotation_plan import HeldCertificate, is_expired


class CertificateBoard:
    """The pair in force and how its renewal goes. Written by its rotator only."""

    def __init__(self) -> None:
        self._pair: CertificatePair | None = None
        self._held: HeldCertificate | None = None
        self._changes = Broadcast[CertificatePair]()
        self.is_provisional = False
        """Whether it came inline with the kubeconfig and is to be replaced at once."""
        self.is_server_well = False
        """Whether the newest request was answered by the API server itself."""
        self.renewal_failures = 0

    @property
    def pair(self) -> CertificatePair | None:
        return self._pair

    @property
    def held(self) -> HeldCertificate | None:
        return self._held

    def is_valid(self, *, now: datetime) -> bool:
        """Return whether there is one that has not expired."""
        return self._held is not None and not is_expired(self._held.facts, now=now)

    def put(self, pair: CertificatePair, held: HeldCertificate, *, is_provisional: bool = False) -> None:
        self._pair, self._held, self.is_provisional = pair, held, is_provisional
        self._changes.send(pair)

    def changes(self) -> Subscription[CertificatePair]:
        """Subscribe to new pairs."""
        return self._changes.subscribe()
