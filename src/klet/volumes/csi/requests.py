"""The requests to drivers: capabilities, contexts and secrets. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from klet.api.pod import Pod
from klet.csi.client import NodeCapability
from klet.model.hidden_fields import HidesFields
from klet.model.objects import IssuedToken
from klet.volumes.csi.source import CsiSource
from klet.wire import csi_v1_pb2 as pb

TOKENS: Final = "csi.storage.k8s.io/serviceAccount.tokens"
_MODES: Final = pb.VolumeCapability.AccessMode
_PLAIN: Final = {
    "ReadWriteOnce": _MODES.SINGLE_NODE_WRITER,
    "ReadWriteOncePod": _MODES.SINGLE_NODE_WRITER,
    "ReadOnlyMany": _MODES.MULTI_NODE_READER_ONLY,
    "ReadWriteMany": _MODES.MULTI_NODE_MULTI_WRITER,
}
_MULTI_WRITER: Final = {
    **_PLAIN,
    "ReadWriteOnce": _MODES.SINGLE_NODE_MULTI_WRITER,
    "ReadWriteOncePod": _MODES.SINGLE_NODE_SINGLE_WRITER,
}
_ESCAPES: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


class Given(HidesFields, frozen=True, kw_only=True):
    """What was found out for a request besides the volume itself."""

    HIDDEN = frozenset({"secrets", "volume_context"})

    capabilities: frozenset[NodeCapability]
    publish_context: Mapping[str, str] = {}
    volume_context: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    fs_group: int | None = None
    label: str = ""
    """The SELinux label to mount with; empty without one."""


def access_mode(mode: str, capabilities: frozenset[NodeCapability]) -> "pb.VolumeCapability.AccessMode.Mode":
    """Return what a PersistentVolume's access mode is in the protocol."""
    table = _MULTI_WRITER if NodeCapability.SINGLE_NODE_MULTI_WRITER in capabilities else _PLAIN
    return table.get(mode, _MODES.UNKNOWN)


def mount_capability(source: CsiSource, given: Given) -> pb.VolumeCapability:
    options = list(source.mount_options)
    if given.label:
        options.append(f'context="{given.label}"')
    group = ""
    if given.fs_group is not None and NodeCapability.VOLUME_MOUNT_GROUP in given.capabilities:
        group = str(given.fs_group)
    mount = pb.VolumeCapability.MountVolume(fs_type=source.fs_type, mount_flags=options, volume_mount_group=group)
    return pb.VolumeCapability(mount=mount, access_mode=_access(source, given))


def block_capability(source: CsiSource, given: Given) -> pb.VolumeCapability:
    return pb.VolumeCapability(block=pb.VolumeCapability.BlockVolume(), access_mode=_access(source, given))


def stage_request(
    source: CsiSource, given: Given, *, staging: str, is_block: bool = False
) -> pb.NodeStageVolumeRequest:
    return pb.NodeStageVolumeRequest(
        volume_id=source.handle,
        publish_context=given.publish_context,
        staging_target_path=staging,
        volume_capability=(block_capability if is_block else mount_capability)(source, given),
        secrets=given.secrets,
        volume_context=source.attributes,
    )


def publish_request(
    source: CsiSource, given: Given, *, target: str, staging: str, is_block: bool = False
) -> pb.NodePublishVolumeRequest:
    return pb.NodePublishVolumeRequest(
        volume_id=source.handle,
        publish_context=given.publish_context,
        staging_target_path=staging,
        target_path=target,
        volume_capability=(block_capability if is_block else mount_capability)(source, given),
        readonly=source.read_only,
        secrets=given.secrets,
        volume_context={**source.attributes, **given.volume_context},
    )


def expand_request(
    source: CsiSource, given: Given, *, path: str, staging: str, size: int, is_block: bool
) -> pb.NodeExpandVolumeRequest:
    return pb.NodeExpandVolumeRequest(
        volume_id=source.handle,
        volume_path=path,
        capacity_range=pb.CapacityRange(required_bytes=size),
        staging_target_path=staging,
        volume_capability=(block_capability if is_block else mount_capability)(source, given),
        secrets=given.secrets,
    )


def pod_info(pod: Pod, *, is_inline: bool) -> dict[str, str]:
    """Return what a driver is given of the pod, if it asks for that."""
    return {
        "csi.storage.k8s.io/pod.name": pod.metadata.name,
        "csi.storage.k8s.io/pod.namespace": pod.metadata.namespace,
        "csi.storage.k8s.io/pod.uid": pod.metadata.uid,
        "csi.storage.k8s.io/serviceAccount.name": pod.spec.service_account_name,
        "csi.storage.k8s.io/ephemeral": "true" if is_inline else "false",
    }


def encode_tokens(tokens: Mapping[str, IssuedToken]) -> str:
    """Return tokens by audience as Go writes a map of TokenRequestStatus."""
    whole = {
        audience: {
            "token": token.token,
            "expirationTimestamp": None if token.expires_at is None else f"{token.expires_at:%Y-%m-%dT%H:%M:%SZ}",
        }
        for audience, token in sorted(tokens.items())
    }
    return msgspec.json.encode(whole).decode().translate(_ESCAPES)


def _access(source: CsiSource, given: Given) -> pb.VolumeCapability.AccessMode:
    return pb.VolumeCapability.AccessMode(mode=access_mode(source.access_mode, given.capabilities))
