"""configMap, secret, downwardAPI and projected: files that the agent shows to a pod and keeps up to date."""

from abc import abstractmethod
from datetime import datetime
from typing import ClassVar, Protocol

from msgspec import Struct

from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec
from klet.api.config import ConfigMap, Secret
from klet.api.pod import Pod
from klet.api.volume import (
    ClusterTrustBundleProjection,
    PodCertificateProjection,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from klet.errors import KletError
from klet.model.error_text import join_errors
from klet.model.objects import IssuedToken, ObjectMissing, PodCredentials
from klet.model.pods import PodUID
from klet.model.roles import NodeResources, ObjectReader
from klet.volumes.atomic_writer import FileProjection, Payload
from klet.volumes.errors import VolumeSetupError
from klet.volumes.media import DISK, IN_MEMORY
from klet.volumes.payloads import config_map_payload, downward_payload, required_mode, secret_payload
from klet.volumes.plugins.base import SHOWN_FILES, MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.shown_files import ShownFiles
from klet.volumes.usage import fs_group, fs_user

_GUARDED_MODE = 0o600


class TokenReader(Protocol):
    """Gets tokens of service accounts."""

    async def get(self, namespace: str, account: str, request: TokenRequest) -> IssuedToken: ...

    def forget_pod(self, uid: PodUID) -> None: ...


class TrustReader(Protocol):
    """Gets root certificates out of trust bundles."""

    async def anchors(self, source: ClusterTrustBundleProjection) -> bytes: ...


class CertificateReader(Protocol):
    """Gets the certificates of pods."""

    def read(self, pod: Pod, volume: str, index: int) -> PodCredentials:
        """Return those of one source of a volume; a KletError if they are not there."""
        ...


class Content(Struct, frozen=True):
    """What a volume shows, and when that will be old by itself."""

    payload: Payload
    old_at: datetime | None = None


class ShownFilesPlugin(VolumePlugin):
    """The common way of these volumes: first all data, then the disk."""

    requires_remount = True
    medium: ClassVar[str] = IN_MEMORY

    def __init__(self, *, files: ShownFiles) -> None:
        self._files = files

    @abstractmethod
    async def collect(self, request: MountRequest) -> Content:
        """Return everything that goes into the volume; nothing is written yet."""

    def attributes(self, volume: Volume) -> VolumeAttributes:  # noqa: ARG002 - the same for all of them
        return SHOWN_FILES

    def path(self, uid: PodUID, volume: Volume) -> str:
        return str(self._files.path(uid, self.name, volume.name))

    async def set_up(self, request: MountRequest) -> datetime | None:
        content = await self.collect(request)
        clear_at = await self._files.show(request, self.name, content.payload, medium=self.medium)
        return min((at for at in (content.old_at, clear_at) if at is not None), default=None)

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._files.remove(uid, self.name, name)


class ConfigMapPlugin(ShownFilesPlugin):
    """The keys of a config map as files, on disk."""

    name = "kubernetes.io/configmap"
    medium = DISK

    def __init__(self, *, files: ShownFiles, objects: ObjectReader) -> None:
        super().__init__(files=files)
        self._objects = objects

    def supports(self, volume: Volume) -> bool:
        return volume.config_map is not None

    async def collect(self, request: MountRequest) -> Content:
        source = request.volume.config_map
        assert source is not None  # by `supports`
        found = await read_config_map(self._objects, request, source.name, is_optional=bool(source.optional))
        mode = required_mode(source.default_mode)
        is_optional = bool(source.optional)
        return Content(config_map_payload(found, source.items, default_mode=mode, is_optional=is_optional))


class SecretPlugin(ShownFilesPlugin):
    """The keys of a secret as files, in memory."""

    name = "kubernetes.io/secret"

    def __init__(self, *, files: ShownFiles, objects: ObjectReader) -> None:
        super().__init__(files=files)
        self._objects = objects

    def supports(self, volume: Volume) -> bool:
        return volume.secret is not None

    async def collect(self, request: MountRequest) -> Content:
        source = request.volume.secret
        assert source is not None  # by `supports`
        is_optional = bool(source.optional)
        found = await read_secret(self._objects, request, source.secret_name, is_optional=is_optional)
        mode = required_mode(source.default_mode)
        return Content(secret_payload(found, source.items, default_mode=mode, is_optional=is_optional))


class DownwardApiPlugin(ShownFilesPlugin):
    """The pod's own fields as files, in memory."""

    name = "kubernetes.io/downward-api"

    def __init__(self, *, files: ShownFiles, node: NodeResources) -> None:
        super().__init__(files=files)
        self._node = node

    def supports(self, volume: Volume) -> bool:
        return volume.downward_api is not None

    async def collect(self, request: MountRequest) -> Content:
        source = request.volume.downward_api
        assert source is not None  # by `supports`
        mode, allocatable = required_mode(source.default_mode), self._node.allocatable()
        payload = downward_payload(
            request.pod, request.allocation, source.items, default_mode=mode, allocatable=allocatable
        )
        return Content(payload)


class ProjectedPlugin(ShownFilesPlugin):
    """Several sources in one directory, in memory; of two files with one path the later counts."""

    name = "kubernetes.io/projected"

    def __init__(
        self,
        *,
        files: ShownFiles,
        objects: ObjectReader,
        tokens: TokenReader,
        trust: TrustReader,
        certificates: CertificateReader,
        node: NodeResources,
        has_api: bool,
    ) -> None:
        super().__init__(files=files)
        self._objects = objects
        self._tokens = tokens
        self._trust = trust
        self._certificates = certificates
        self._node = node
        self._has_api = has_api

    def supports(self, volume: Volume) -> bool:
        return volume.projected is not None

    async def collect(self, request: MountRequest) -> Content:
        source = request.volume.projected
        assert source is not None  # by `supports`
        mode = required_mode(source.default_mode)
        if not self._has_api and any(part.downward_api is None for part in source.sources):
            raise VolumeSetupError(
                f"cannot setup projected volume {request.volume.name} because kube client is not configured"
            )
        return await self._merge(request, source, mode)

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await super().tear_down(uid, name)
        self._tokens.forget_pod(uid)

    async def _merge(self, request: MountRequest, source: ProjectedVolumeSource, mode: int) -> Content:
        payload: dict[str, FileProjection] = {}
        instants: list[datetime] = []
        errors: list[str] = []
        for index, part in enumerate(source.sources):
            try:
                content = await self._part(request, part, index, mode)
            except KletError as error:
                errors.append(str(error))
            else:
                payload.update(content.payload)
                instants += [content.old_at] if content.old_at is not None else []
        if errors:
            raise VolumeSetupError(join_errors(errors))
        return Content(payload, min(instants, default=None))

    async def _part(self, request: MountRequest, part: VolumeProjection, index: int, mode: int) -> Content:
        if part.secret is not None:
            is_optional = bool(part.secret.optional)
            secret = await read_secret(self._objects, request, part.secret.name, is_optional=is_optional)
            return Content(secret_payload(secret, part.secret.items, default_mode=mode, is_optional=is_optional))
        if part.config_map is not None:
            is_optional = bool(part.config_map.optional)
            found = await read_config_map(self._objects, request, part.config_map.name, is_optional=is_optional)
            items = part.config_map.items
            return Content(config_map_payload(found, items, default_mode=mode, is_optional=is_optional))
        if part.downward_api is not None:
            payload = downward_payload(
                request.pod,
                request.allocation,
                part.downward_api.items,
                default_mode=mode,
                allocatable=self._node.allocatable(),
            )
            return Content(payload)
        if part.service_account_token is not None:
            return await self._token(request, part.service_account_token, mode)
        if part.cluster_trust_bundle is not None:
            anchors = await self._trust.anchors(part.cluster_trust_bundle)
            mode, user = _guarded(request.pod, mode)
            return Content({part.cluster_trust_bundle.path: FileProjection(anchors, mode, user)})
        if part.pod_certificate is not None:
            held = self._certificates.read(request.pod, request.volume.name, index)
            return Content(_certificate_files(part.pod_certificate, held, *_guarded(request.pod, mode)))
        return Content({})

    async def _token(self, request: MountRequest, source: ServiceAccountTokenProjection, mode: int) -> Content:
        pod = request.pod
        mode, user = _guarded(pod, mode)
        issued = await self._tokens.get(
            pod.metadata.namespace, pod.spec.service_account_name, token_request(request, source)
        )
        return Content({source.path: FileProjection(issued.token.encode(), mode, user)}, issued.refresh_at)


def _certificate_files(
    source: PodCertificateProjection, held: PodCredentials, mode: int, user: int | None
) -> dict[str, FileProjection]:
    """Return the files that a source asks for: key and certificates in one, or each in its own."""
    files = {
        source.credential_bundle_path: held.key + held.chain,
        source.key_path: held.key,
        source.certificate_chain_path: held.chain,
    }
    return {path: FileProjection(content, mode, user) for path, content in files.items() if path}


def token_request(request: MountRequest, source: ServiceAccountTokenProjection) -> TokenRequest:
    """Return a token that dies with the pod."""
    meta = request.pod.metadata
    bound = BoundObjectReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid)
    return TokenRequest(
        spec=TokenRequestSpec(
            audiences=(source.audience,) if source.audience else (),
            expiration_seconds=source.expiration_seconds,
            bound_object_ref=bound,
        )
    )


async def read_config_map(objects: ObjectReader, request: MountRequest, name: str, *, is_optional: bool) -> ConfigMap:
    """Return a config map; an empty one in place of one that may be missing."""
    try:
        return await objects.config_map(request.pod.metadata.namespace, name)
    except ObjectMissing:
        if not is_optional:
            raise
        return ConfigMap()


async def read_secret(objects: ObjectReader, request: MountRequest, name: str, *, is_optional: bool) -> Secret:
    """Return a secret; an empty one in place of one that may be missing."""
    try:
        return await objects.secret(request.pod.metadata.namespace, name)
    except ObjectMissing:
        if not is_optional:
            raise
        return Secret()


def _guarded(pod: Pod, mode: int) -> tuple[int, int | None]:
    """Return mode and owner of a file for the pod's own user or group alone; without those the mode as it is."""
    user = fs_user(pod)
    if user is not None or fs_group(pod) is not None:
        return _GUARDED_MODE, user  # the group's bits come with its ownership
    return mode, user
