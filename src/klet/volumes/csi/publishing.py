"""Publishes CSI volumes for pods, and takes that back (upstream: csi_mounter.go)."""

from collections.abc import Mapping

from klet.aio.threads import Threads
from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec
from klet.api.storage import CSIDriver
from klet.csi.client import CsiClient, NodeCapability
from klet.csi.errors import CsiError
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.model.roles import AccountTokens
from klet.volumes.csi import directories, driver_rules
from klet.volumes.csi.access import CsiAccess, classify
from klet.volumes.csi.places import DATA_FILE, PREFIX, CsiLayout, attachment_name
from klet.volumes.csi.requests import TOKENS, Given, encode_tokens, pod_info, publish_request
from klet.volumes.csi.source import CsiSource, source_of
from klet.volumes.csi.staging import clean_up
from klet.volumes.csi.vol_data import BadVolumeData, VolumeData
from klet.volumes.errors import TransientFailure, UncertainProgress, VolumeSetupError
from klet.volumes.owner_change import OwnerChanger
from klet.volumes.ownership import Ownership
from klet.volumes.plugins.base import MountRequest
from klet.volumes.usage import fs_group_change_policy


class CsiPublisher:
    """Publishes volumes of PersistentVolumes and inline ones, with all that their CSIDriver asks for."""

    def __init__(
        self,
        *,
        access: CsiAccess,
        layout: CsiLayout,
        tokens: AccountTokens,
        threads: Threads,
        owners: OwnerChanger,
        has_tokens_in_secrets: bool,
    ) -> None:
        self._access = access
        self._layout = layout
        self._tokens = tokens
        self._threads = threads
        self._owners = owners
        self._has_tokens_in_secrets = has_tokens_in_secrets

    async def publish(self, request: MountRequest) -> None:
        source = source_of(request.spec, uid=request.uid, namespace=request.pod.metadata.namespace)
        failure = "mounter.SetUpAt failed to get CSI client"
        async with self._access.open(source.driver, failure=failure, is_migrated=source.is_migrated) as client:
            driver = self._access.object_of(source.driver)
            policy = self._check(driver, source)
            given, staging = await self._collect(client, request, source, driver)
            target = self._layout.target(request.uid, source.name)
            await self._prepare(request, source, given)
            try:
                await client.publish(publish_request(source, given, target=str(target.path), staging=staging))
            except CsiError as error:
                if error.is_final and not request.is_remount:
                    await clean_up(self._threads, target, error)
                raise classify(error) from error
        is_drivers = NodeCapability.VOLUME_MOUNT_GROUP in given.capabilities
        if not is_drivers and driver_rules.changes_ownership(source, policy, request.fs_group):
            await self._own(request, source)

    async def unpublish(self, uid: PodUID, name: str) -> None:
        target = self._layout.target(uid, name)
        try:
            data = await self.read(uid, name)
        except BadVolumeData as error:
            path = target.parent.path / DATA_FILE
            raise VolumeSetupError(f"{PREFIX}unmounter failed to load volume data file [{path}]: {error}") from error
        if data is None:
            await self._threads.run(directories.remove_mounted, target)
            return
        async with self._access.open(
            data.driver_name, failure="Unmounter.TearDownAt failed to get CSI client"
        ) as client:
            try:
                await client.unpublish(data.volume_handle, str(target.path))
            except CsiError as error:
                raise VolumeSetupError(f"{PREFIX}Unmounter.TearDownAt failed: {error}") from error
        try:
            await self._threads.run(directories.remove_mounted, target)
        except KletError as error:
            failure = f"Unmounter.TearDownAt failed to clean mount dir [{target.path}]"
            raise VolumeSetupError(f"{PREFIX}{failure}: {error}") from error

    async def read(self, uid: PodUID, name: str) -> VolumeData | None:
        """Return what is written of a volume in the directory that a pod has of it; None if nothing is."""
        return await self._threads.run(directories.read_data, self._layout.volume(uid, name))

    def _check(self, driver: CSIDriver | None, source: CsiSource) -> driver_rules.FsGroupPolicy:
        try:
            driver_rules.check_lifecycle_mode(driver, source.driver, source.lifecycle_mode)
        except VolumeSetupError as error:
            failure = "mounter.SetupAt failed to check volume lifecycle mode"
            raise TransientFailure(f"{PREFIX}{failure}: {error}") from error
        try:
            return driver_rules.fs_group_policy(driver)
        except VolumeSetupError as error:
            failure = "mounter.SetupAt failed to check fsGroup policy"
            raise TransientFailure(f"{PREFIX}{failure}: {error}") from error

    async def _collect(
        self, client: CsiClient, request: MountRequest, source: CsiSource, driver: CSIDriver | None
    ) -> tuple[Given, str]:
        """Return what the request needs, and where the volume is staged; empty if it is not."""
        try:
            capabilities = await client.capabilities()
        except CsiError as error:
            failure = "mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability"
            raise TransientFailure(f"{PREFIX}{failure}: {error}") from error
        staging, publish_context = "", dict[str, str]()
        if not source.is_inline:
            if NodeCapability.STAGE_UNSTAGE_VOLUME in capabilities:
                staging = str(self._layout.staging(source.driver, source.handle).path)
            publish_context = dict(await self._publish_context(source))
        secrets = dict(
            await self._access.secret(source.publish_secret, failure="fetching NodePublishSecretRef {} failed")
        )
        context = pod_info(request.pod, is_inline=source.is_inline) if driver_rules.wants_pod_info(driver) else {}
        tokens = await self._account_tokens(request, driver)
        if driver_rules.has_tokens_in_secrets(driver, is_enabled=self._has_tokens_in_secrets):
            secrets.update(tokens)
        else:
            context.update(tokens)
        has_label = bool(request.label) and driver_rules.supports_label(driver)
        given = Given(
            capabilities=capabilities,
            publish_context=publish_context,
            volume_context=context,
            secrets=secrets,
            fs_group=request.fs_group,
            label=request.label if has_label else "",
        )
        return given, staging

    async def _publish_context(self, source: CsiSource) -> Mapping[str, str]:
        try:
            return await self._access.publish_context(source)
        except TransientFailure as error:
            failure = "mounter.SetUpAt failed to fetch publishContext"
            raise TransientFailure(f"{PREFIX}{failure}: {error}") from error

    async def _account_tokens(self, request: MountRequest, driver: CSIDriver | None) -> dict[str, str]:
        if driver is None or not driver.spec.token_requests:
            return {}
        meta = request.pod.metadata
        bound = BoundObjectReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid)
        issued = {}
        for wanted in driver.spec.token_requests:
            spec = TokenRequestSpec(
                audiences=(wanted.audience,) if wanted.audience else (),
                expiration_seconds=wanted.expiration_seconds,
                bound_object_ref=bound,
            )
            account = request.pod.spec.service_account_name
            try:
                issued[wanted.audience] = await self._tokens.get(meta.namespace, account, TokenRequest(spec=spec))
            except KletError as error:
                failure = "mounter.SetUpAt failed to get service accoount token attributes"  # upstream's spelling
                raise TransientFailure(f"{PREFIX}{failure}: {error}") from error
        return {TOKENS: encode_tokens(issued)}

    async def _prepare(self, request: MountRequest, source: CsiSource, given: Given) -> None:
        """Make the directory with the file that says how to take the volume down; nothing else is klet's there."""
        volume = self._layout.volume(request.uid, source.name)
        data = VolumeData(
            spec_vol_id=source.name,
            volume_handle=source.handle,
            driver_name=source.driver,
            node_name=self._access.node,
            volume_lifecycle_mode=source.lifecycle_mode,
            attachment_id=attachment_name(source.handle, source.driver, self._access.node),
            se_linux_mount_context=given.label,
        )
        try:
            await self._threads.run(directories.make_place, volume)
            await self._threads.run(directories.write_data, volume, data)
        except KletError as error:
            raise TransientFailure(f"{PREFIX}mounter.SetUpAt failed to save volume info data: {error}") from error

    async def _own(self, request: MountRequest, source: CsiSource) -> None:
        assert request.fs_group is not None  # by `changes_ownership`
        target = self._layout.target(request.uid, source.name)
        wanted = Ownership(request.fs_group, policy=fs_group_change_policy(request.pod))
        try:
            await self._owners.change(request.pod, target.path, wanted, depth=len(target.names))
        except KletError as error:
            raise UncertainProgress(f"applyFSGroup failed for vol {source.handle}: {error}") from error
