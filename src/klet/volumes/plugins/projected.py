"""projected: several sources in one directory, such as service account tokens, trust bundles and pod certificates."""

from datetime import datetime
from typing import Protocol

from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec
from klet.api.pod import Pod
from klet.api.volume import (
    ClusterTrustBundleProjection,
    PodCertificateProjection,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    VolumeProjection,
)
from klet.errors import KletError
from klet.model.error_text import join_errors
from klet.model.objects import PodCredentials
from klet.model.pods import PodUID
from klet.model.roles import AccountTokens, NodeResources, ObjectReader
from klet.volumes.atomic_writer import FileProjection
from klet.volumes.errors import VolumeSetupError
from klet.volumes.generated_files import GeneratedFiles
from klet.volumes.payloads import config_map_payload, downward_payload, required_mode, secret_payload
from klet.volumes.plugins.base import MountRequest
from klet.volumes.plugins.config_map import read_config_map
from klet.volumes.plugins.generated import Content, GeneratedFilesPlugin
from klet.volumes.plugins.secret import read_secret
from klet.volumes.spec import VolumeSpec
from klet.volumes.usage import fs_group, fs_user

_GUARDED_MODE = 0o600


class TokenReader(AccountTokens, Protocol):
    """Gets tokens of service accounts, and drops those of pods."""

    def forget_pod(self, uid: PodUID) -> None: ...


class TrustReader(Protocol):
    """Gets root certificates out of trust bundles."""

    async def anchors(self, source: ClusterTrustBundleProjection) -> bytes: ...


class CertificateReader(Protocol):
    """Gets the certificates of pods."""

    def read(self, pod: Pod, volume: str, index: int) -> PodCredentials:
        """Return those of one source of a volume; a KletError if they are not there."""
        ...


class ProjectedPlugin(GeneratedFilesPlugin):
    """Several sources in one directory, in memory; of two files with one path the later counts."""

    name = "kubernetes.io/projected"

    def __init__(
        self,
        *,
        files: GeneratedFiles,
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

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.volume.projected is not None

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
    """Return the request for a token that is bound to the pod: it becomes invalid when the pod is deleted."""
    meta = request.pod.metadata
    bound = BoundObjectReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid)
    return TokenRequest(
        spec=TokenRequestSpec(
            audiences=(source.audience,) if source.audience else (),
            expiration_seconds=source.expiration_seconds,
            bound_object_ref=bound,
        )
    )


def _guarded(pod: Pod, mode: int) -> tuple[int, int | None]:
    """Return mode and owner of a file for the pod's own user or group alone; without those the mode as it is."""
    user = fs_user(pod)
    if user is not None or fs_group(pod) is not None:
        return _GUARDED_MODE, user  # the group's bits come with its ownership
    return mode, user
