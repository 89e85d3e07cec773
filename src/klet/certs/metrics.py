"""Metrics of the certificates that the node requests: how long they are valid, and how their renewal goes."""

import math
from typing import Final

from klet.aio.broadcast import Lagged
from klet.aio.clock import Clock
from klet.certs.board import CertificateBoard
from klet.certs.messages import Purpose
from klet.metrics import Histogram, MetricRegistry

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86400
_LIVES: Final = (
    *(_MINUTE, _HOUR, 4 * _HOUR, _DAY, 7 * _DAY),
    *(30 * _DAY, 90 * _DAY, 180 * _DAY, 360 * _DAY, 4 * 360 * _DAY),
)
_FAILURES: Final = {
    Purpose.CLIENT: "kubelet_certificate_manager_client_expiration_renew_errors",
    Purpose.SERVER: "kubelet_server_expiration_renew_errors",
}


def register_certificate(registry: MetricRegistry, purpose: Purpose, board: CertificateBoard, clock: Clock) -> None:
    """Register what can be seen of a certificate on its board."""

    def left() -> dict[tuple[str, ...], float]:
        held = board.held
        if held is None:
            return {(): math.inf}
        return {(): math.trunc((held.facts.not_after - clock.now()).total_seconds())}

    registry.computed(
        f"kubelet_certificate_manager_{purpose}_ttl_seconds",
        f"How long the {purpose} certificate is valid, negative after its end; +Inf if there is none.",
        left,
    )
    registry.computed(
        _FAILURES[purpose],
        f"Renewals of the {purpose} certificate that failed.",
        lambda: {(): board.renewal_failures},
        kind="counter",
    )


def register_lives(registry: MetricRegistry) -> Histogram:
    return registry.histogram(
        "kubelet_certificate_manager_server_rotation_seconds",
        "How long the serving certificate before had lived when it was replaced.",
        _LIVES,
    )


class CertificateLives:
    """Measures how long each certificate of a board has lived when the next one replaces it."""

    def __init__(self, *, board: CertificateBoard, lives: Histogram, clock: Clock) -> None:
        self._board = board
        self._lives = lives
        self._clock = clock

    async def run(self) -> None:
        with self._board.changes() as changes:
            held = self._board.held
            async for change in changes:
                if held is not None and not isinstance(change, Lagged):
                    self._lives.observe((self._clock.now() - held.facts.not_before).total_seconds())
                held = self._board.held
