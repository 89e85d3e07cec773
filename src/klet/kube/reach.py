"""Whether an API server answers: a board that the transports write.

A refusal is an answer. A server, or a proxy before it, that says 5xx cannot answer for the cluster.
"""

from typing import Final

from klet.aio.broadcast import Broadcast, Subscription

FAILING: Final = 500


class Reach:
    """What became of requests."""

    def __init__(self) -> None:
        self._outcomes = Broadcast[bool]()

    def answered(self, code: int) -> None:
        self._tell(is_answered=code < FAILING)

    def failed(self) -> None:
        """No answer came."""
        self._tell(is_answered=False)

    def outcomes(self) -> Subscription[bool]:
        """Of each request from now on: whether the server answered."""
        return self._outcomes.subscribe()

    def _tell(self, *, is_answered: bool) -> None:
        self._outcomes.send(is_answered)
