"""Answers of one credential provider, kept for as long as they are good. Bounded in number and in bytes."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from klet.images.docker_config import RegistryLogin
from klet.images.providers.accounts import AccountKey
from klet.images.providers.messages import CacheKeyType

PURGE_EVERY: Final = timedelta(minutes=15)
MOST_ANSWERS: Final = 1000
MOST_BYTES: Final = 4 << 20
_LOOKUP: Final = (CacheKeyType.IMAGE, CacheKeyType.REGISTRY, CacheKeyType.GLOBAL)

Logins: TypeAlias = Mapping[str, RegistryLogin]


class _Key(NamedTuple):
    kind: CacheKeyType
    place: str
    account: AccountKey | None


class _Kept(Struct, frozen=True):
    logins: Logins
    until: float
    size: int


class AnswerCache:
    """What a provider said. Times are those of a clock that never steps, in seconds."""

    def __init__(self) -> None:
        self._kept: dict[_Key, _Kept] = {}
        self._bytes = 0
        self._purged_at: float | None = None

    def get(self, repository: str, account: AccountKey | None, *, now: float) -> Logins | None:
        """Return the logins for a repository: those for it alone, for its registry, for everything; None if none."""
        for kind in _LOOKUP:
            key = _Key(kind, _place(kind, repository), account)
            if (kept := self._kept.get(key)) is None:
                continue
            if now < kept.until:
                return kept.logins
            self._drop(key)
        return None

    def put(
        self,
        logins: Logins,
        *,
        kind: CacheKeyType,
        repository: str,
        account: AccountKey | None,
        good_for: timedelta,
        now: float,
    ) -> None:
        """Keep an answer. Where there are too many, those go that came first."""
        if good_for <= timedelta():
            return
        if self._purged_at is None or now - self._purged_at >= PURGE_EVERY.total_seconds():
            self._purged_at = now
            for key in [key for key, kept in self._kept.items() if now >= kept.until]:
                self._drop(key)
        key = _Key(kind, _place(kind, repository), account)
        self._drop(key)
        size = sum(len(place) + len(login.username) + len(login.password) for place, login in logins.items())
        self._kept[key] = _Kept(logins, now + good_for.total_seconds(), size)
        self._bytes += size
        while len(self._kept) > MOST_ANSWERS or self._bytes > MOST_BYTES:
            self._drop(next(iter(self._kept)))

    def __len__(self) -> int:
        return len(self._kept)

    def _drop(self, key: _Key) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._bytes -= kept.size


def _place(kind: CacheKeyType, repository: str) -> str:
    match kind:
        case CacheKeyType.IMAGE:
            return repository
        case CacheKeyType.REGISTRY:
            return repository.partition("/")[0]
        case CacheKeyType.GLOBAL:
            return ""
