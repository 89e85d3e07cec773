"""The pods this node should run, and the mirrors that show static ones in the API (pod manager).

Written by the sync loop only.
"""

from klet.aio.broadcast import Broadcast, Subscription
from klet.api.pod import Pod
from klet.model.pods import PodUID, full_name, is_static, uid_of


class PodStore:
    """Wanted pods by UID and by full name."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, Pod] = {}
        self._mirrors: dict[str, Pod] = {}
        self._changes = Broadcast[str]()

    def get(self, uid: PodUID) -> Pod | None:
        return self._pods.get(uid)

    def by_full_name(self, name: str) -> Pod | None:
        return next((pod for pod in self._pods.values() if full_name(pod) == name), None)

    def all(self) -> tuple[Pod, ...]:
        return tuple(self._pods.values())

    def uids(self) -> frozenset[PodUID]:
        return frozenset(self._pods)

    def mirrors(self) -> tuple[Pod, ...]:
        return tuple(self._mirrors.values())

    def mirror_of(self, pod: Pod) -> Pod | None:
        """Return the API object that shows a static pod."""
        return self._mirrors.get(full_name(pod))

    def static_of(self, name: str) -> Pod | None:
        """Return the static pod that a mirror of this full name shows."""
        found = self.by_full_name(name)
        return found if found is not None and is_static(found) else None

    def changes(self) -> Subscription[str]:
        """Subscribe to the full names of pods and mirrors that were added, changed or removed."""
        return self._changes.subscribe()

    def put(self, pod: Pod) -> None:
        self._pods[uid_of(pod)] = pod
        self._changes.send(full_name(pod))

    def remove(self, uid: PodUID) -> None:
        if (gone := self._pods.pop(uid, None)) is not None:
            self._changes.send(full_name(gone))

    def put_mirror(self, mirror: Pod) -> None:
        self._mirrors[full_name(mirror)] = mirror
        self._changes.send(full_name(mirror))

    def remove_mirror(self, mirror: Pod) -> None:
        """Forget a mirror, unless another one has its name by now."""
        known = self._mirrors.get(full_name(mirror))
        if known is not None and uid_of(known) == uid_of(mirror):
            del self._mirrors[full_name(mirror)]
            self._changes.send(full_name(mirror))
