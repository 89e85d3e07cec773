"""How long the images of a pod took to pull, for what a start would have taken without that."""

from klet.model.pods import PodUID


class PullTimes:
    """Pulls per pod. Written by the image manager, forgotten by what reads them."""

    def __init__(self) -> None:
        self._pulls: dict[PodUID, list[tuple[float, float]]] = {}

    def note(self, uid: PodUID, *, began: float, ended: float) -> None:
        """Note a pull, with its times on the clock that never steps."""
        self._pulls.setdefault(uid, []).append((began, ended))

    def seconds(self, uid: PodUID) -> float:
        """Return how long something was pulled: two pulls at the same time count once."""
        total, until = 0.0, float("-inf")
        for began, ended in sorted(self._pulls.get(uid, ())):
            total += max(0.0, ended - max(began, until))
            until = max(until, ended)
        return total

    def keep_only(self, uids: frozenset[PodUID]) -> None:
        self._pulls = {uid: pulls for uid, pulls in self._pulls.items() if uid in uids}
