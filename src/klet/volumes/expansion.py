"""Lets filesystems follow volumes that have grown, and keeps their claims informed (node expander)."""

import logging
from typing import Final, Protocol

from msgspec.structs import replace

from klet.aio.clock import Clock
from klet.api.claim import PersistentVolumeClaim
from klet.api.quantity import Quantity
from klet.errors import KletError
from klet.model.causes import CauseRecorder
from klet.volumes import findings
from klet.volumes.devices import DeviceBoard, NodeDevice
from klet.volumes.errors import TransientFailure, VolumeSetupError
from klet.volumes.expansion_plan import (
    STORAGE,
    ExpansionEnd,
    ExpansionPlan,
    Patch,
    decide_end,
    is_smaller,
    patch_begun,
    plan_expansion,
)
from klet.volumes.names import VolumeName
from klet.volumes.plugin_calls import carry_out
from klet.volumes.plugins.base import ExpandRequest, Expansion, ExpansionOutcome, StagedPlugin
from klet.volumes.state import DesiredMount
from klet.volumes.steps import desired_size

logger = logging.getLogger(__name__)

_ZERO: Final = Quantity()


class ClaimStatuses(Protocol):
    """Reads claims, and writes their status."""

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:
        """Return a claim as it is now; raises KletError."""
        ...

    async def patch_claim_status(self, namespace: str, name: str, patch: Patch) -> PersistentVolumeClaim:
        """Change the status by a strategic merge patch; return the claim as it is then. Raises KletError."""
        ...


class VolumeExpander:
    """Expands volumes while they are mounted for a pod, and later."""

    def __init__(
        self, *, claims: ClaimStatuses, devices: DeviceBoard, node_name: str, recorder: CauseRecorder, clock: Clock
    ) -> None:
        self._claims = claims
        self._devices = devices
        self._node_name = node_name
        self._recorder = recorder
        self._clock = clock
        self._failed: set[VolumeName] = set()
        """Volumes whose expansion has ended with a final error in this run of the agent."""

    def forget(self, name: VolumeName) -> None:
        """Forget a device that the node has no more."""
        self._failed.discard(name)

    async def follow_on_mount(self, desired: DesiredMount, device: NodeDevice | None, *, mount_path: str) -> None:
        """Expand a volume that is being mounted, if it has grown since its claim was last updated."""
        persistent, use = desired.spec.persistent, desired.claim
        if device is None or persistent is None or use is None or not desired.is_expandable:
            return
        size = persistent.spec.capacity.get(STORAGE)
        if size is None:
            return
        claim = await self._read(desired)
        if not is_smaller(claim, size):
            self._keep(device.name, size=claim.status.capacity.get(STORAGE, size))
            return
        if desired.spec.read_only:
            for finding in findings.read_only_expansion(desired):
                self._recorder.record(finding)
            return
        old_size = claim.status.capacity.get(STORAGE, _ZERO)
        await self._expand(desired, device, claim, size=size, old_size=old_size, mount_path=mount_path)

    async def expand_online(self, desired: DesiredMount, device: NodeDevice, *, mount_path: str) -> None:
        """Expand a volume that a pod has had for a while."""
        size = desired_size(desired)
        if size is None or device.size is None:
            raise VolumeSetupError("current or new size of the volume is not set")
        claim = await self._read(desired)
        await self._expand(desired, device, claim, size=size, old_size=device.size, mount_path=mount_path)

    async def _expand(
        self,
        desired: DesiredMount,
        device: NodeDevice,
        claim: PersistentVolumeClaim,
        *,
        size: Quantity,
        old_size: Quantity,
        mount_path: str,
    ) -> None:
        plan = plan_expansion(claim, size=size, has_failed=device.name in self._failed)
        if not plan.is_allowed:
            if plan.is_claim_updated:
                self._keep(device.name, size=plan.new_size)
            return
        if plan.recovers and not plan.is_claim_updated:
            claim = await self._patch(desired, patch_begun(claim))
        request = ExpandRequest(
            spec=desired.spec,
            new_size=plan.new_size,
            old_size=old_size,
            device_path=device.path,
            mount_path=mount_path,
            device_mount_path=device.staging_path or device.mount_path,
        )
        expansion = await self._ask(desired, request)
        await self._finish(desired, device.name, plan, decide_end(plan, expansion, claim, now=self._clock.now()))

    async def _ask(self, desired: DesiredMount, request: ExpandRequest) -> Expansion:
        plugin = desired.plugin
        assert isinstance(plugin, StagedPlugin)  # only these are expandable
        try:
            return await carry_out(plugin.expand(request), desired.key.volume)
        except TransientFailure as error:
            return Expansion(ExpansionOutcome.TRANSIENT, str(error))
        except KletError as error:
            return Expansion(ExpansionOutcome.FAILED, str(error))

    async def _finish(self, desired: DesiredMount, name: VolumeName, plan: ExpansionPlan, end: ExpansionEnd) -> None:
        if end.is_final_error:
            self._failed.add(name)
        if end.is_reported:
            for finding in findings.expanded(desired, node=self._node_name):
                self._recorder.record(finding)
        if end.grows_unused_only:
            self._keep(name, grows_unused_only=True)
        if end.patch:
            try:
                await self._patch(desired, end.patch)
            except KletError as error:
                if end.must_be_patched:
                    raise VolumeSetupError(f"mountVolume.NodeExpandVolume update pvc status failed: {error}") from error
                extra = {"volume": desired.spec.name, "error": str(error)}
                logger.warning("The claim of a volume that did not grow is not updated", extra=extra)
        if end.error:
            raise VolumeSetupError(end.error)
        if end.is_finished:
            self._keep(name, size=plan.new_size)

    async def _read(self, desired: DesiredMount) -> PersistentVolumeClaim:
        assert desired.claim is not None  # only claimed volumes grow
        try:
            return await self._claims.claim(desired.claim.namespace, desired.claim.name)
        except KletError as error:
            raise VolumeSetupError(f"mountVolume.NodeExpandVolume get PVC failed : {error}") from error

    async def _patch(self, desired: DesiredMount, patch: Patch) -> PersistentVolumeClaim:
        assert desired.claim is not None
        name = desired.claim.name
        try:
            return await self._claims.patch_claim_status(desired.claim.namespace, name, patch)
        except KletError as error:
            raise VolumeSetupError(f'patchPVCStatus failed to patch PVC "{name}": {error}') from error

    def _keep(self, name: VolumeName, *, size: Quantity | None = None, grows_unused_only: bool | None = None) -> None:
        """Keep on the board what is known by now."""
        device = self._devices.get(name)
        if device is not None:
            self._devices.put(
                replace(
                    device,
                    size=device.size if size is None else size,
                    grows_unused_only=device.grows_unused_only if grows_unused_only is None else grows_unused_only,
                )
            )
