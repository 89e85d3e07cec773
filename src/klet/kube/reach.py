"""Whether an API server answers: a board that the transports write.

A refusal is an answer. A server, or a proxy before it, that answers 5xx cannot answer for the cluster.
"""

from typing import Final

from klet.aio.broadcast import Broadcast, Subscription
from klet.kube.errors import AWAY

FAILING: Final = 500


class Reach:
    """What became of requests."""

    def __init__(self) -> None:
        self._outcomes = Broadcast[bool]()
        self._troubles = Broadcast[str]()

    def answered(self, code: int) -> None:
        self._troubles.send(f"it answers {code}" if code in AWAY else "")
        self._tell(is_answered=code < FAILING)

    def failed(self, why: str) -> None:
        """Note that no answer came."""
        self._troubles.send(why)
        self._tell(is_answered=False)

    def outcomes(self) -> Subscription[bool]:
        """Subscribe to the outcomes of requests: whether the server answered."""
        return self._outcomes.subscribe()

    def troubles(self) -> Subscription[str]:
        """Subscribe to the result of each request from now on: why it was not answered, or an empty text."""
        return self._troubles.subscribe()

    def _tell(self, *, is_answered: bool) -> None:
        self._outcomes.send(is_answered)
