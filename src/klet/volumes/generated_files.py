"""Writes the files of configMap, secret, downwardAPI and projected volumes, which the agent generates."""

import contextlib
from datetime import datetime
from pathlib import Path

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.contained import make_beneath
from klet.host.errors import HostError, MountInTree
from klet.model.pods import PodUID
from klet.volumes.atomic_writer import Payload, clean_payload, write_payload
from klet.volumes.errors import VolumeSetupError
from klet.volumes.media import DISK, ScratchRules
from klet.volumes.names import Layout
from klet.volumes.ownership import Ownership, change_ownership
from klet.volumes.plugins.base import MountRequest
from klet.volumes.quotas import ProjectQuotas, assign_quota, release_quota, wants_quota
from klet.volumes.scratch import Scratch, ScratchDirectories
from klet.volumes.usage import fs_group, nested_mount_points
from klet.volumes.volume_directories import open_volume


class GeneratedFiles:
    """Writes payloads to volumes."""

    def __init__(
        self,
        *,
        layout: Layout,
        scratches: ScratchDirectories,
        rules: ScratchRules,
        quotas: ProjectQuotas,
        threads: Threads,
        clock: Clock,
    ) -> None:
        self._layout = layout
        self._scratches = scratches
        self._rules = rules
        self._quotas = quotas
        self._threads = threads
        self._clock = clock

    def path(self, uid: PodUID, plugin: str, name: str) -> Path:
        return self._layout.volume(uid, plugin, name)

    async def write(self, request: MountRequest, plugin: str, payload: Payload, *, medium: str) -> datetime | None:
        """Write the payload to the volume; return when to write it again, which removes the version it replaced."""
        clean_payload(payload)
        name, group = request.volume.name, fs_group(request.pod)
        scratch = Scratch(
            path=self.path(request.uid, plugin, name),
            marker=self._marker(request.uid, name),
            medium=medium,
            options=self._rules.options(request.pod, request.allocation, medium),
            group=group,
            pod_uid=request.uid,
        )
        if wants_quota(request.pod, medium):
            # Before there are files in it: they have its project from the beginning.
            await self._threads.run(self._scratches.set_up, scratch)
            await assign_quota(self._quotas, scratch.path, pod=request.pod, medium=medium)
        return await self._threads.run(self._write, request, scratch, payload)

    async def remove(self, uid: PodUID, plugin: str, name: str) -> None:
        path = self.path(uid, plugin, name)
        await release_quota(self._quotas, path)
        await self._threads.run(self._scratches.tear_down, path, self._marker(uid, name))

    def _marker(self, uid: PodUID, name: str) -> Path:
        return self._layout.marker(uid, f"wrapped_{name}")

    def _write(self, request: MountRequest, scratch: Scratch, payload: Payload) -> datetime | None:
        self._scratches.set_up(scratch)
        _make_nested(scratch.path, request)

        def own() -> None:
            if scratch.group is not None:
                change_ownership(scratch.path, Ownership(scratch.group, read_only=True))

        try:
            return write_payload(
                scratch.path, payload, now=self._clock.now(), own=own, one_mount=scratch.medium == DISK
            ).clear_at
        except MountInTree:
            raise  # what is mounted there is not ours to take down
        except KletError:
            if not request.is_remount:
                # What cannot be taken down now is taken down when the pod ends; report the first failure.
                with contextlib.suppress(HostError):
                    self._scratches.tear_down(scratch.path, scratch.marker)
            raise


def _make_nested(path: Path, request: MountRequest) -> None:
    try:
        with open_volume(path) as volume:
            for point in nested_mount_points(request.pod, request.volume.name):
                make_beneath(path, point, mode=0o755, opened=volume)
    except HostError as error:
        raise VolumeSetupError(f"unable to create nested volume mountpoints: {error}") from error
