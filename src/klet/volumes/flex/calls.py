"""What a flexVolume driver is called with, and what its answers mean. Pure."""

from base64 import b64encode
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import DecodeError, Struct, ValidationError, field, json

from klet.api.pod import Pod
from klet.api.volume_intree import FlexPersistentVolumeSource, FlexVolumeSource
from klet.volumes.errors import VolumeSetupError
from klet.volumes.spec import VolumeSpec

FLEX: Final = "kubernetes.io/flexvolume"
SUCCESS: Final = "Success"
NOT_SUPPORTED: Final = "Not supported"
_LONGEST_SHOWN: Final = 2000


class FlexCommand(StrEnum):
    """The first argument of a driver."""

    INIT = "init"
    ATTACH = "attach"
    DETACH = "detach"
    WAIT_FOR_ATTACH = "waitforattach"
    MOUNT_DEVICE = "mountdevice"
    UNMOUNT_DEVICE = "unmountdevice"
    MOUNT = "mount"
    UNMOUNT = "unmount"
    EXPAND_FS = "expandfs"


class FlexCapabilities(Struct, frozen=True):
    """What a driver says of itself when it is found."""

    attach: bool = True
    relabels: bool = field(name="selinuxRelabel", default=True)
    has_metrics: bool = field(name="supportsMetrics", default=False)
    fs_group: bool = field(name="fsGroup", default=True)
    requires_fs_resize: bool = field(name="requiresFSResize", default=True)


class FlexAnswer(Struct, frozen=True, rename="camel"):
    """What a driver prints."""

    status: str = ""
    message: str = ""
    device: str = ""
    capabilities: FlexCapabilities | None = None


class FlexCallFailed(VolumeSetupError):
    """A driver said no, or nothing that can be understood."""


class FlexNotSupported(FlexCallFailed):
    """A driver does not have this command; what it would do is done here."""


def read_answer(command: str, output: bytes) -> FlexAnswer:
    """Return the answer of a driver that said yes; raises FlexCallFailed, FlexNotSupported."""
    try:
        answer = json.decode(output, type=FlexAnswer)
    except (DecodeError, ValidationError) as error:
        shown = output.decode(errors="replace")[:_LONGEST_SHOWN]
        raise FlexCallFailed(
            f"Failed to unmarshal output for command: {command}, output: {shown!r}, error: {error}"
        ) from error
    if answer.status == NOT_SUPPORTED:
        raise FlexNotSupported(NOT_SUPPORTED)
    if answer.status != SUCCESS:
        status, reason = answer.status[:_LONGEST_SHOWN], answer.message[:_LONGEST_SHOWN]
        raise FlexCallFailed(f"{command} command failed, status: {status}, reason: {reason}")
    return answer


def flex_source(spec: VolumeSpec) -> FlexVolumeSource | FlexPersistentVolumeSource | None:
    return spec.volume.flex_volume if spec.persistent is None else spec.persistent.spec.flex_volume


def is_read_only(spec: VolumeSpec) -> bool:
    if spec.persistent is not None:
        return spec.read_only
    return spec.volume.flex_volume is not None and spec.volume.flex_volume.read_only


def secret_name(spec: VolumeSpec, *, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the secret that a driver gets; None without one."""
    if spec.persistent is not None:
        claimed = spec.persistent.spec.flex_volume
        if claimed is None or claimed.secret_ref is None or not claimed.secret_ref.name:
            return None
        return claimed.secret_ref.namespace or namespace, claimed.secret_ref.name
    inline = spec.volume.flex_volume
    if inline is None or inline.secret_ref is None or not inline.secret_ref.name:
        return None
    return namespace, inline.secret_ref.name


def pod_options(pod: Pod, *, fs_group: int | None) -> Mapping[str, str]:
    """Return what a driver is given of the pod that it mounts for."""
    options = {
        "kubernetes.io/pod.name": pod.metadata.name,
        "kubernetes.io/pod.namespace": pod.metadata.namespace,
        "kubernetes.io/pod.uid": pod.metadata.uid,
        "kubernetes.io/serviceAccount.name": pod.spec.service_account_name or "",
    }
    if fs_group is not None:
        options["kubernetes.io/mounterArgs.FsGroup"] = str(fs_group)
    return options


def secret_options(data: Mapping[str, bytes]) -> Mapping[str, str]:
    return {f"kubernetes.io/secret/{name}": b64encode(value).decode() for name, value in data.items()}


def encode_options(spec: VolumeSpec, extra: Mapping[str, str] = {}) -> str:
    """Return the options of a volume as a driver gets them; those that the volume itself names come last."""
    source = flex_source(spec)
    if source is None:
        raise VolumeSetupError(f"volume {spec.name} is not one of {FLEX}")
    options = {
        "kubernetes.io/fsType": source.fs_type,
        "kubernetes.io/readwrite": "ro" if is_read_only(spec) else "rw",
        "kubernetes.io/pvOrVolumeName": spec.name,
        **extra,
        **source.options,
    }
    return json.encode(dict(sorted(options.items()))).decode()
