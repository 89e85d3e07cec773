"""User namespaces of pods: which block of the host's ids each pod has (upstream: `userns`).

A block is written to the pod's directory before it is used, so that the pod keeps it when the agent starts again.
"""

import random
from collections.abc import Mapping
from typing import Protocol

from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.pods import PodUID, uid_of
from klet.runtime.config.id_blocks import IdBlock, IdBlocks, UserNamespaceError, decode_block, encode_block
from klet.runtime.errors import SandboxConfigError
from klet.runtime.runtime_class import Handlers
from klet.wire import cri_v1_pb2 as cri


class MappingFiles(Protocol):
    """Where pods' mappings are kept."""

    async def read(self, uid: PodUID) -> bytes | None:
        """Return what was written for a pod; None if nothing was."""
        ...

    async def write(self, uid: PodUID, data: bytes) -> None: ...

    async def remove(self, uid: PodUID) -> None: ...


class UserNamespaceManager:
    """Allocates ids to pods and takes them back (upstream: userns manager)."""

    def __init__(
        self,
        *,
        blocks: IdBlocks,
        files: MappingFiles,
        handlers: Handlers,
        randomness: random.Random,
        is_enabled: bool = True,
    ) -> None:
        self._blocks = blocks
        self._files = files
        self._handlers = handlers
        self._randomness = randomness
        self._is_enabled = is_enabled

    def restore(self, written: Mapping[PodUID, bytes]) -> None:
        """Take over the ids that a previous run of the agent allocated. A bad file raises: its ids may be in use.

        At start, before the first pod.
        """
        for uid, data in sorted(written.items()):
            if data:
                self._blocks.record(uid, decode_block(data))

    async def option_for(self, pod: Pod, handler: str) -> cri.UserNamespace | None:
        """Return the user namespace option of a pod's sandbox and containers; it is the same each time."""
        if not self._is_enabled:
            if pod.spec.host_users is not None:
                text = 'the feature gate "UserNamespacesSupport" is disabled: can\'t set spec.HostUsers'
                raise SandboxConfigError(text)
            return None
        if pod.spec.host_users is not False:
            return cri.UserNamespace(mode=cri.NODE)
        await self._check_support(handler)
        block = await self._block_of(uid_of(pod))
        mapping = cri.IDMapping(container_id=0, host_id=block.first, length=block.length)
        return cri.UserNamespace(mode=cri.POD, uids=[mapping], gids=[mapping])

    async def release(self, uid: PodUID) -> None:
        """Free the ids of a terminated pod."""
        if self._blocks.of(uid) is not None:
            await self._files.remove(uid)
            self._blocks.release(uid)

    def forget(self, uid: PodUID) -> None:
        """Free the ids of a pod whose directory is gone, and the file with it."""
        self._blocks.release(uid)

    async def _check_support(self, handler: str) -> None:
        who = f'RuntimeClass handler "{handler}"' if handler else "runtime"
        refusal = f"can't set `spec.hostUsers: false`, {who} does not support user namespaces"
        try:
            features = await self._handlers.features_of(handler)
        except KletError as error:
            raise SandboxConfigError(f"{refusal}: {error}") from error
        if not features.is_known:
            raise SandboxConfigError(f'{refusal}: the handler "{handler}" is not known')
        if not features.user_namespaces:
            raise SandboxConfigError(refusal)

    async def _block_of(self, uid: PodUID) -> IdBlock:
        known = self._blocks.of(uid)
        if known is not None:
            return known
        try:
            if written := await self._files.read(uid):
                block = decode_block(written)
                self._blocks.record(uid, block)
                return block
            block = self._blocks.allocate(uid, self._randomness)
        except UserNamespaceError as error:
            raise SandboxConfigError(str(error)) from error
        try:
            await self._files.write(uid, encode_block(block))
        except KletError:
            self._blocks.release(uid)
            raise
        return block
