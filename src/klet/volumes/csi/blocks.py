"""Stages and publishes CSI volumes as devices, and takes that back (upstream: csi_block.go)."""

import logging

from klet.aio.threads import Threads
from klet.csi.client import NodeCapability
from klet.csi.errors import CsiError
from klet.errors import KletError
from klet.host.beneath import unlink_below
from klet.model.pods import PodUID
from klet.volumes.csi import directories, driver_rules
from klet.volumes.csi.access import CsiAccess, classify
from klet.volumes.csi.places import DATA_FILE, PREFIX, CsiLayout, Place, attachment_name, is_block_directory
from klet.volumes.csi.requests import Given, pod_info, publish_request, stage_request
from klet.volumes.csi.source import CsiSource, persistent_source
from klet.volumes.csi.staging import read_capabilities
from klet.volumes.csi.vol_data import BadVolumeData, VolumeData, check_named
from klet.volumes.errors import TransientFailure, VolumeSetupError
from klet.volumes.names import escape
from klet.volumes.plugins.base import StageRequest

logger = logging.getLogger(__name__)


class CsiBlocks:
    """Volumes that containers have as devices. The service account's tokens are not for these."""

    def __init__(self, *, access: CsiAccess, layout: CsiLayout, threads: Threads) -> None:
        self._access = access
        self._layout = layout
        self._threads = threads

    async def stage(self, request: StageRequest) -> str:
        """Return where it is staged; empty for a driver without that step."""
        source = persistent_source(request.spec)
        await self._write(source)
        place = self._layout.block_staging(source.name)
        failure = "blockMapper.SetUpDevice failed to get CSI client"
        async with self._access.open(source.driver, failure=failure, is_migrated=source.is_migrated) as client:
            capabilities = await read_capabilities(client)
            if NodeCapability.STAGE_UNSTAGE_VOLUME not in capabilities:
                return ""
            given = Given(
                capabilities=capabilities,
                publish_context=await self._access.publish_context(source),
                secrets=await self._access.secret(source.stage_secret, failure="failed to get NodeStageSecretRef {}"),
            )
            await self._make(place, "blockMapper.stageVolumeForBlock failed to create dir")
            try:
                await client.stage(stage_request(source, given, staging=str(place.path), is_block=True))
            except CsiError as error:
                if error.is_final:
                    await self._clean_up(source.name)
                raise classify(error) from error
        return str(place.path)

    async def publish(self, request: StageRequest) -> str:
        """Return the device that the driver has made for the pod."""
        source = persistent_source(request.spec)
        await self._write(source)
        target = self._layout.block_target(source.name, request.uid)
        failure = "blockMapper.MapPodDevice failed to get CSI client"
        async with self._access.open(source.driver, failure=failure, is_migrated=source.is_migrated) as client:
            capabilities = await read_capabilities(client)
            driver = self._access.object_of(source.driver)
            info = pod_info(request.pod, is_inline=False) if driver_rules.wants_pod_info(driver) else {}
            failure = "blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef {}"
            given = Given(
                capabilities=capabilities,
                publish_context=await self._access.publish_context(source),
                volume_context=info,
                secrets=await self._access.secret(source.publish_secret, failure=failure),
            )
            await self._make(target.parent, "blockMapper.publishVolumeForBlock failed to create dir")
            staging = str(self._layout.block_staging(source.name).path)
            try:
                await client.publish(
                    publish_request(source, given, target=str(target.path), staging=staging, is_block=True)
                )
            except CsiError as error:
                raise classify(error) from error
        return str(target.path)

    async def unpublish(self, uid: PodUID, name: str) -> None:
        target = self._layout.block_target(name, uid)
        data = await self._read(name)
        if data is None:
            if await self._threads.run(directories.exists, target):
                raise VolumeSetupError(f"{PREFIX}blockMapper.UnmapPodDevice: there is no {DATA_FILE} for {target.path}")
            return
        await self._unpublish(data, target)

    async def unstage(self, name: str) -> None:
        place = self._layout.block_staging(name)
        data = await self._read(name)
        if data is not None:
            # No pod has it any more. What is published all the same, a run left that was killed before it had a link.
            for target in await self._threads.run(directories.list_below, self._layout.block_published(name)):
                await self._unpublish(data, target)
            if await self._threads.run(directories.exists, place):
                await self._unstage(data, place)
        await self._clean_up(name)

    async def read(self, name: str) -> VolumeData:
        """Return what a previous run of the agent wrote about a volume."""
        data = await self._read(name)
        if data is None:
            raise BadVolumeData(f"{PREFIX}there is no {self._layout.block_data(name).path / DATA_FILE}")
        check_named(data)
        if escape(data.spec_vol_id) != escape(name):
            raise BadVolumeData(f"{PREFIX}{self._layout.block_data(name).path / DATA_FILE} is of another volume")
        return data

    async def find(self) -> list[VolumeData]:
        """Return what previous runs have staged, or have begun to. Empty directories of volumes are removed."""
        found: list[VolumeData] = []
        for place in await self._threads.run(directories.list_places, self._layout.blocks):
            name = place.names[-1]
            try:
                if await self._read(name) is not None:
                    found.append(await self.read(name))
                elif is_block_directory(name):
                    await self._clean_up(name)
            except KletError as error:
                extra = {"volume": str(place.path), "error": str(error)}
                logger.warning("What a previous run has staged cannot be read", extra=extra)
        return found

    async def _unpublish(self, data: VolumeData, target: Place) -> None:
        failure = "blockMapper.unpublishVolumeForBlock failed to get CSI client"
        async with self._access.open(data.driver_name, failure=failure) as client:
            try:
                await client.unpublish(data.volume_handle, str(target.path))
            except CsiError as error:
                raise VolumeSetupError(f"{PREFIX}blockMapper.unpublishVolumeForBlock failed: {error}") from error
        await self._threads.run(_remove_device, target)

    async def _unstage(self, data: VolumeData, place: Place) -> None:
        failure = "blockMapper.TearDownDevice failed to get CSI client"
        async with self._access.open(data.driver_name, failure=failure) as client:
            capabilities = await read_capabilities(client)
            if NodeCapability.STAGE_UNSTAGE_VOLUME not in capabilities:
                return
            try:
                await client.unstage(data.volume_handle, str(place.path))
            except CsiError as error:
                raise VolumeSetupError(f"{PREFIX}blockMapper.unstageVolumeForBlock failed: {error}") from error

    async def _read(self, name: str) -> VolumeData | None:
        return await self._threads.run(directories.read_data, self._layout.block_data(name))

    async def _write(self, source: CsiSource) -> None:
        place = self._layout.block_data(source.name)
        data = VolumeData(
            spec_vol_id=source.name,
            volume_handle=source.handle,
            driver_name=source.driver,
            node_name=self._access.node,
            attachment_id=attachment_name(source.handle, source.driver, self._access.node),
        )
        await self._make(place, "failed to create data dir")
        try:
            await self._threads.run(directories.write_data, place, data)
        except KletError as error:
            raise TransientFailure(f"{PREFIX}failed to save volume info data: {error}") from error

    async def _make(self, place: Place, failure: str) -> None:
        try:
            await self._threads.run(directories.make_place, place)
        except KletError as error:
            raise TransientFailure(f"{PREFIX}{failure} {place.path}: {error}") from error

    async def _clean_up(self, name: str) -> None:
        """Remove the directories of a volume that is not staged; the first that cannot be removed ends that."""
        try:
            await self._threads.run(directories.remove_empty, self._layout.block_published(name))
            await self._threads.run(directories.remove_empty, self._layout.block_staging(name))
            await self._threads.run(directories.remove_empty, self._layout.block_map(name))
            data = self._layout.block_data(name)
            if await self._threads.run(directories.exists, data):
                await self._threads.run(directories.remove_data, data)
                await self._threads.run(directories.remove_empty, data)
            await self._threads.run(directories.remove_empty, self._layout.block(name))
        except KletError as error:
            logger.warning("Directories of a block volume stay", extra={"volume": name, "error": str(error)})


def _remove_device(target: Place) -> None:
    """Remove what a driver has left of what it published; never through a mount. It blocks."""
    if directories.is_mounted(target):
        raise directories.StillMounted(f"{target.path} is still a mount point")
    unlink_below(target.root, *target.names)
