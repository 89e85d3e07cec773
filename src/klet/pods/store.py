"""The pods this node should run (pod manager). Written by the sync loop only."""

from klet.api.pod import Pod
from klet.model.pods import PodUID, full_name, uid_of


class PodStore:
    """Wanted pods by UID and by full name."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, Pod] = {}

    def get(self, uid: PodUID) -> Pod | None:
        return self._pods.get(uid)

    def by_full_name(self, name: str) -> Pod | None:
        return next((pod for pod in self._pods.values() if full_name(pod) == name), None)

    def all(self) -> tuple[Pod, ...]:
        return tuple(self._pods.values())

    def uids(self) -> frozenset[PodUID]:
        return frozenset(self._pods)

    def put(self, pod: Pod) -> None:
        self._pods[uid_of(pod)] = pod

    def remove(self, uid: PodUID) -> None:
        self._pods.pop(uid, None)
