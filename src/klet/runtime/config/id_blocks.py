"""Blocks of the host's user and group ids, one for each pod with a user namespace, and their file format. Pure.

The first block belongs to the host's own users and is never given out.
"""

import random

import msgspec
from msgspec import Struct

from klet.errors import KletError
from klet.model.pods import PodUID

UNIT = 65536
ALL_IDS = 1 << 32


class UserNamespaceError(KletError):
    """Ids that cannot be given to a pod, or a range that cannot be divided among pods."""


class UserIdSettings(Struct, frozen=True, kw_only=True):
    """How the host's ids are divided."""

    per_pod: int = UNIT
    max_pods: int = 110
    is_enabled: bool = True


class IdBlock(Struct, frozen=True):
    """Ids on the host that a pod sees as 0 and up."""

    first: int
    length: int


class IdRange(Struct, frozen=True, kw_only=True):
    """The ids that pods may have, and how many each gets."""

    first: int
    length: int
    per_pod: int

    @property
    def count(self) -> int:
        return self.length // self.per_pod


def choose_range(*, per_pod: int, max_pods: int, granted: IdBlock | None = None) -> IdRange:
    """Return all ids but the first block, or what the host's administrator granted the kubelet."""
    block = granted or IdBlock(per_pod, ALL_IDS - per_pod)
    rules = (
        (per_pod % UNIT == 0, f"userNamespaces.idsPerPod {per_pod} is not a multiple of {UNIT}"),
        (block.first % per_pod == 0, f"the first id {block.first} is not a multiple of {per_pod}"),
        (block.first >= per_pod, f"the first id {block.first} must be at least {per_pod}"),
        (block.length % per_pod == 0, f"the number of ids {block.length} is not a multiple of {per_pod}"),
        (block.length // per_pod >= max_pods, f"{block.length} ids are too few for {max_pods} pods of {per_pod} each"),
    )
    for is_kept, message in rules:
        if not is_kept:
            raise UserNamespaceError(message)
    return IdRange(first=block.first, length=block.length, per_pod=per_pod)


def parse_granted(users: str, groups: str) -> IdBlock:
    """Parse the output of `getsubids`: `0: kubelet 65536 7208960`, the same for users and groups."""
    if users != groups:
        raise UserNamespaceError("user and group ids granted to the kubelet differ")
    lines = users.strip().splitlines()
    if len(lines) != 1:
        raise UserNamespaceError(f"expected one range of ids granted to the kubelet, found {len(lines)}")
    fields = lines[0].split()
    if len(fields) != 4 or not all(each.isdecimal() for each in fields[2:]):
        raise UserNamespaceError(f"cannot read the range of ids granted to the kubelet: {lines[0]!r}")
    return IdBlock(int(fields[2]), int(fields[3]))


class IdBlocks:
    """Which pod has which block."""

    def __init__(self, *, ids: IdRange) -> None:
        self._ids = ids
        self._owners: dict[int, PodUID] = {}
        self._blocks: dict[PodUID, IdBlock] = {}

    def of(self, uid: PodUID) -> IdBlock | None:
        return self._blocks.get(uid)

    def record(self, uid: PodUID, block: IdBlock) -> None:
        """Note a block that a pod has already."""
        known = self._blocks.get(uid)
        if known == block:
            return
        if known is not None:
            raise _invalid(f'different user namespace range already used by pod "{uid}"')
        if block.length != self._ids.per_pod:
            raise _invalid(f"wrong user namespace length {block.length}")
        if block.first % self._ids.per_pod:
            raise _invalid(f"wrong user namespace offset specified {block.first}")
        if not self._ids.first <= block.first < self._ids.first + self._ids.length:
            raise _invalid(f"id {block.first} is out of range")
        if block.first in self._owners:
            raise _invalid(f'range picked for pod "{uid}" already taken')
        self._owners[block.first] = uid
        self._blocks[uid] = block

    def allocate(self, uid: PodUID, randomness: random.Random) -> IdBlock:
        """Give a pod a random block of its own, so that one block reveals nothing about the others."""
        count, ids = self._ids.count, self._ids
        start = randomness.randrange(count) if count else 0
        for step in range(count):
            first = ids.first + (start + step) % count * ids.per_pod
            if first not in self._owners:
                block = IdBlock(first, ids.per_pod)
                self.record(uid, block)
                return block
        raise UserNamespaceError("create user namespace: could not find an empty slot to allocate a user namespace")

    def release(self, uid: PodUID) -> None:
        block = self._blocks.pop(uid, None)
        if block is not None:
            del self._owners[block.first]


class _Mapping(msgspec.Struct, frozen=True, rename="camel"):
    host_id: int = 0
    container_id: int = 0
    length: int = 0


class _Mappings(msgspec.Struct, frozen=True, rename="camel"):
    uid_mappings: tuple[_Mapping, ...] = ()
    gid_mappings: tuple[_Mapping, ...] = ()


def encode_block(block: IdBlock) -> bytes:
    """Return the file in a pod's directory, in upstream's form."""
    mapping = (_Mapping(host_id=block.first, container_id=0, length=block.length),)
    return msgspec.json.encode(_Mappings(uid_mappings=mapping, gid_mappings=mapping))


def decode_block(data: bytes) -> IdBlock:
    try:
        mappings = msgspec.json.decode(data, type=_Mappings)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(f"invalid user namespace mappings file: {error}") from error
    wrong = "invalid user namespace configuration: "
    if len(mappings.uid_mappings) > 1 or len(mappings.gid_mappings) > 1:
        raise _invalid(f"{wrong}no more than one mapping allowed.")
    if mappings.uid_mappings != mappings.gid_mappings:
        raise _invalid(f"{wrong}GID and UID mappings should be identical.")
    if not mappings.uid_mappings or mappings.uid_mappings[0].container_id != 0:
        raise _invalid(f"{wrong}UID 0 must be mapped")
    found = mappings.uid_mappings[0]
    return IdBlock(found.host_id, found.length)


def _invalid(message: str) -> UserNamespaceError:
    return UserNamespaceError(f"user namespace: {message}")
