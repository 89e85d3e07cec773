"""Stages CSI volumes on the node, and takes that back (upstream: csi_attacher.go)."""

import logging
from pathlib import PurePath

from klet.aio.threads import Threads
from klet.csi.client import CsiClient, NodeCapability
from klet.csi.errors import CsiError
from klet.errors import KletError
from klet.volumes.csi import directories, driver_rules
from klet.volumes.csi.access import CsiAccess, classify
from klet.volumes.csi.places import GLOBAL_MOUNT, PREFIX, CsiLayout, Place
from klet.volumes.csi.requests import Given, stage_request
from klet.volumes.csi.source import CsiSource, persistent_source
from klet.volumes.csi.vol_data import BadVolumeData, VolumeData, check_named
from klet.volumes.errors import TransientFailure, UncertainProgress, VolumeSetupError
from klet.volumes.plugins.base import StageRequest

logger = logging.getLogger(__name__)


class CsiStager:
    """Stages the volumes of drivers that have that step. Of others only the directory is made."""

    def __init__(self, *, access: CsiAccess, layout: CsiLayout, threads: Threads) -> None:
        self._access = access
        self._layout = layout
        self._threads = threads

    async def stage(self, request: StageRequest) -> None:
        source = persistent_source(request.spec)
        place = self._layout.staging(source.driver, source.handle)
        if request.mount_path != str(place.path):
            raise VolumeSetupError(
                f"{PREFIX}attacher.MountDevice failed, {request.mount_path} is not where it is staged"
            )
        failure = "attacher.MountDevice failed to create newCsiDriverClient"
        async with self._access.open(source.driver, failure=failure, is_migrated=source.is_migrated) as client:
            capabilities = await read_capabilities(client)
            context = await self._access.publish_context(source)
            is_staged = NodeCapability.STAGE_UNSTAGE_VOLUME in capabilities
            secrets = await self._access.secret(
                source.stage_secret if is_staged else None, failure="fetching NodeStageSecretRef {} failed"
            )
            await self._make(place)
            if not is_staged:
                return
            has_label = bool(request.label) and driver_rules.supports_label(self._access.object_of(source.driver))
            given = Given(
                capabilities=capabilities,
                publish_context=context,
                secrets=secrets,
                fs_group=request.fs_group,
                label=request.label if has_label else "",
            )
            await self._write(place, source, given)
            try:
                await client.stage(stage_request(source, given, staging=str(place.path)))
            except CsiError as error:
                if error.is_final:
                    await clean_up(self._threads, place, error)
                raise classify(error) from error

    async def unstage(self, mount_path: str) -> None:
        place = self._place_of(mount_path)
        data = await self._threads.run(directories.read_data, place.parent)
        if data is None:
            # Nothing was staged, or a driver without that step was asked. All that can be there is the directory.
            if not await self._threads.run(directories.is_mounted, place):
                await self._threads.run(directories.remove_mounted, place)
            return
        failure = "attacher.UnmountDevice failed to create newCsiDriverClient"
        async with self._access.open(data.driver_name, failure=failure) as client:
            try:
                capabilities = await client.capabilities()
            except CsiError as error:
                checking = "attacher.UnmountDevice failed to check whether STAGE_UNSTAGE_VOLUME set"
                raise VolumeSetupError(f"{PREFIX}{checking}: {error}") from error
            if NodeCapability.STAGE_UNSTAGE_VOLUME in capabilities:
                try:
                    await client.unstage(data.volume_handle, str(place.path))
                except CsiError as error:
                    raise VolumeSetupError(f"{PREFIX}attacher.UnmountDevice failed: {error}") from error
        await self._threads.run(directories.remove_mounted, place)

    async def find(self) -> list[VolumeData]:
        """Return what previous runs have staged, or have begun to. Empty directories of volumes are removed."""
        found: list[VolumeData] = []
        for driver in await self._threads.run(directories.list_places, self._layout.drivers):
            if driver.names == self._layout.blocks.names:
                continue
            for staged in await self._threads.run(directories.list_places, driver):
                try:
                    data = await self._threads.run(directories.read_data, staged)
                    if data is None:
                        await self._threads.run(directories.remove_mounted, staged.below(GLOBAL_MOUNT))
                        continue
                    check_named(data)
                    if self._layout.staged(data.driver_name, data.volume_handle) != staged:
                        raise BadVolumeData("it is the file of another volume")
                    found.append(data)
                except KletError as error:
                    extra = {"volume": str(staged.path), "error": str(error)}
                    logger.warning("What a previous run has staged cannot be read", extra=extra)
        return found

    def _place_of(self, mount_path: str) -> Place:
        driver, digest, last = ("", "", "", *PurePath(mount_path).parts)[-3:]
        place = self._layout.drivers.below(driver, digest, GLOBAL_MOUNT)
        if last != GLOBAL_MOUNT or str(place.path) != mount_path:
            raise VolumeSetupError(f"{PREFIX}attacher.UnmountDevice failed: {mount_path} is no staging directory")
        return place

    async def _make(self, place: Place) -> None:
        try:
            await self._threads.run(directories.make_place, place)
        except KletError as error:
            failure = f'attacher.MountDevice failed to create dir "{place.path}"'
            raise TransientFailure(f"{PREFIX}{failure}:  {error}") from error

    async def _write(self, place: Place, source: CsiSource, given: Given) -> None:
        data = VolumeData(driver_name=source.driver, volume_handle=source.handle, se_linux_mount_context=given.label)
        try:
            await self._threads.run(directories.write_data, place.parent, data)
        except KletError as error:
            raise TransientFailure(f"{PREFIX}failed to save volume info data: {error}") from error


async def read_capabilities(client: CsiClient) -> frozenset[NodeCapability]:
    """Return what a driver can do. Upstream takes a failure for final; nothing has been tried, so it is not."""
    try:
        return await client.capabilities()
    except CsiError as error:
        raise TransientFailure(str(error)) from error


async def clean_up(threads: Threads, place: Place, error: CsiError) -> None:
    """Remove what was made for a call that certainly failed. UncertainProgress if the driver has left something."""
    try:
        await threads.run(directories.remove_mounted, place)
    except KletError as kept:
        logger.warning("A CSI driver failed and left something", extra={"volume": str(place.path), "error": str(kept)})
        raise UncertainProgress(str(error)) from error
