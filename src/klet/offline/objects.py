"""Config maps and secrets: kept when they are read, and read from what was kept while the API server is away."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from klet.aio.broadcast import Subscription
from klet.api.config import ConfigMap, Secret
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.objects import ObjectKind, ObjectMissing, ObjectRef
from klet.model.pods import PodUID
from klet.model.roles import ReferredObjects
from klet.offline.object_files import Files, file_name
from klet.offline.plan import find_objects

T = TypeVar("T", ConfigMap, Secret)

_MISSING = "-"
"""The version of an object that does not exist."""


class KeptObjects:
    """The same objects, whether the API server is there or not."""

    def __init__(
        self,
        *,
        inner: ReferredObjects,
        config_maps: Files[ConfigMap],
        secrets: Files[Secret],
        is_away: Callable[[], bool],
    ) -> None:
        self._inner = inner
        self._config_maps = config_maps
        self._secrets = secrets
        self._is_away = is_away
        self._remembered: set[ObjectRef] = set()
        """What was last read from disk: that is good until the API server has shown the object itself."""

    def register(self, pod: Pod) -> None:
        self._inner.register(pod)

    def unregister(self, uid: PodUID) -> None:
        self._inner.unregister(uid)

    def changes(self) -> Subscription[ObjectRef]:
        return self._inner.changes()

    async def config_map(self, namespace: str, name: str) -> ConfigMap:
        ref = ObjectRef(ObjectKind.CONFIG_MAP, namespace, name)
        return await self._read(ref, self._inner.config_map, self._config_maps)

    async def secret(self, namespace: str, name: str) -> Secret:
        ref = ObjectRef(ObjectKind.SECRET, namespace, name)
        return await self._read(ref, self._inner.secret, self._secrets)

    async def run(self) -> None:
        """Keep changes that no part reads at once, such as those of environments."""
        with self.changes() as changes:
            async for ref in changes.items():
                try:
                    if ref.kind is ObjectKind.CONFIG_MAP:
                        await self.config_map(ref.namespace, ref.name)
                    else:
                        await self.secret(ref.namespace, ref.name)
                except KletError:
                    continue  # a pod that needs it gets the error

    async def _read(self, ref: ObjectRef, read: Callable[[str, str], Awaitable[T]], files: Files[T]) -> T:
        if self._is_away() and ref in self._remembered and (kept := await _find(files, ref)) is not None:
            return kept  # asking again would only cost time
        try:
            found = await read(ref.namespace, ref.name)
        except ObjectMissing:
            self._remembered.discard(ref)
            await files.keep(owner_of(ref), None, version=_MISSING)
            raise
        except KletError:
            if not self._is_away() and ref not in self._remembered:
                raise
            self._remembered.add(ref)
            if (kept := await _find(files, ref)) is not None:
                return kept
            self._remembered.discard(ref)
            raise
        self._remembered.discard(ref)
        await files.keep(owner_of(ref), found, version=f"{found.metadata.uid}/{found.metadata.resource_version}")
        return found


async def forget_unused(pods: Iterable[Pod], config_maps: Files[ConfigMap], secrets: Files[Secret]) -> None:
    """Remove what none of these pods refers to."""
    refs = find_objects(pods)
    for kind, files in ((ObjectKind.CONFIG_MAP, config_maps), (ObjectKind.SECRET, secrets)):
        wanted = {file_name(owner_of(ref)) for ref in refs if ref.kind is kind}
        await files.retain(wanted.__contains__)


def owner_of(ref: ObjectRef) -> str:
    return f"{ref.namespace}/{ref.name}"


async def _find(files: Files[T], ref: ObjectRef) -> T | None:
    known = await files.find(owner_of(ref))
    if known is None:
        return None
    if known.value is None:
        raise ObjectMissing(f'{ref.kind} "{ref.name}" not found')
    return known.value
