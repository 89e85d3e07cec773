"""The pods this node should run, and the mirrors that show static ones in the API (pod manager).

Written by the sync loop only.
"""

from collections.abc import Mapping
from types import MappingProxyType

from klet.aio.broadcast import Broadcast, Subscription
from klet.api.pod import Pod
from klet.model.pods import PodUID, full_name, is_static, uid_of


class PodStore:
    """Wanted pods by UID and by full name."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, Pod] = {}
        self._by_name: dict[str, dict[PodUID, None]] = {}
        """The pods of each full name, in their order: an old one may still be there when the next one comes."""
        self._mirrors: dict[str, Pod] = {}
        self._changes = Broadcast[str]()

    def get(self, uid: PodUID) -> Pod | None:
        return self._pods.get(uid)

    def by_full_name(self, name: str) -> Pod | None:
        uid = next(iter(self._by_name.get(name, ())), None)
        return None if uid is None else self._pods[uid]

    def all(self) -> tuple[Pod, ...]:
        return tuple(self._pods.values())

    def by_uid(self) -> Mapping[PodUID, Pod]:
        """Return a view of all pods."""
        return MappingProxyType(self._pods)

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
        uid, name = uid_of(pod), full_name(pod)
        before = self._pods.get(uid)
        if before is not None and full_name(before) != name:
            self._forget_name(uid, full_name(before))
        self._pods[uid] = pod
        self._by_name.setdefault(name, {})[uid] = None
        self._changes.send(name)

    def remove(self, uid: PodUID) -> None:
        if (gone := self._pods.pop(uid, None)) is not None:
            self._forget_name(uid, full_name(gone))
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

    def _forget_name(self, uid: PodUID, name: str) -> None:
        del self._by_name[name][uid]
        if not self._by_name[name]:
            del self._by_name[name]
