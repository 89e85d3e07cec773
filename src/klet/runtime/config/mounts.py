"""The mounts and block devices of a container, in the words of the CRI (makeMounts, makeBlockVolumes). Pure.

Directories below a volume (`subPath`) come in ready to mount: who makes them must not follow links out of the volume.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from klet.api.container import Container, EphemeralContainer, VolumeMount
from klet.api.pod import Pod
from klet.api.validation.formats import has_backsteps
from klet.model.expansion import expand, names_in
from klet.model.volumes import HostVolume
from klet.runtime.errors import CREATE_CONFIG_ERROR, StartError
from klet.wire import cri_v1_pb2 as cri

HOSTS_PATH = "/etc/hosts"
_PROPAGATION = {
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}


class BlockVolume(Struct, frozen=True, kw_only=True):
    """A volume that is a device and not a file system."""

    path: str
    """The device's symbolic link; empty as long as it is not there."""
    read_only: bool = False


_NOT_THERE = HostVolume("")


class MountInputs(Struct, frozen=True, kw_only=True):
    """What a container can mount besides what its spec says."""

    volumes: Mapping[str, HostVolume]
    """By their names in the pod."""
    sub_paths: Mapping[int, str] = field(default_factory=dict)
    """By the index of the volume mount: where its part of the volume lies on the host."""
    images: Mapping[str, str] = field(default_factory=dict)
    """References of the images of the pod's image volumes, by volume."""
    image_handler: str = ""
    """The runtime handler that they are kept for, if the runtime is to know."""
    block_volumes: Mapping[str, BlockVolume] = field(default_factory=dict)
    hosts_file: str = ""
    termination_log: str = ""
    supports_recursive_read_only: bool = False
    relabels: bool = False
    """Whether the host has SELinux."""


def build_mounts(
    pod: Pod,
    container: Container | EphemeralContainer,
    inputs: MountInputs,
    *,
    environment: Mapping[str, str],
) -> list[cri.Mount]:
    """Return volumes in the order of the spec, then the hosts file, then the termination log."""
    mounts = [
        _mount(pod, container, index, mount, inputs, environment) for index, mount in enumerate(container.volume_mounts)
    ]
    taken = {mount.mount_path for mount in container.volume_mounts}
    if inputs.hosts_file and HOSTS_PATH not in taken:
        mounts.append(_file(HOSTS_PATH, inputs.hosts_file, inputs))
    if inputs.termination_log and container.termination_message_path:
        mounts.append(_file(container.termination_message_path, inputs.termination_log, inputs))
    return mounts


def resolve_sub_path(mount: VolumeMount, environment: Mapping[str, str]) -> str:
    """Return the part of the volume that is meant, relative to it; empty for the whole volume."""
    path = _expanded(mount.sub_path_expr, environment) if mount.sub_path_expr else mount.sub_path
    if path.startswith("/"):
        raise _error(f"error SubPath `{path}` must not be an absolute path")
    if has_backsteps(path):
        raise _error(f"unable to provision SubPath `{path}`: must not contain '..'")
    return path


def build_block_devices(
    container: Container | EphemeralContainer, volumes: Mapping[str, BlockVolume]
) -> list[cri.Device]:
    """Return the container's raw devices; one whose link is not there yet is left out, as upstream does."""
    devices = []
    for wanted in container.volume_devices:
        if not wanted.device_path.startswith("/"):
            raise _error(f"error DevicePath `{wanted.device_path}` must be an absolute path")
        volume = volumes.get(wanted.name)
        if volume is None:
            raise _error(f'cannot find volume "{wanted.name}" to pass into container "{container.name}"')
        if volume.path:
            permissions = "r" if volume.read_only else "mrw"
            devices.append(
                cri.Device(container_path=wanted.device_path, host_path=volume.path, permissions=permissions)
            )
    return devices


def asks_for_recursive_read_only(mounts: Sequence[VolumeMount]) -> bool:
    """Return whether the container needs to know if the runtime has recursive read-only mounts."""
    return any(mount.recursive_read_only not in {None, "Disabled"} for mount in mounts)


def _mount(
    pod: Pod,
    container: Container | EphemeralContainer,
    index: int,
    wanted: VolumeMount,
    inputs: MountInputs,
    environment: Mapping[str, str],
) -> cri.Mount:
    image, volume = inputs.images.get(wanted.name), inputs.volumes.get(wanted.name, _NOT_THERE)
    if image is None and not volume.path:
        raise _error(f'cannot find volume "{wanted.name}" to mount into container "{container.name}"')
    sub_path = resolve_sub_path(wanted, environment)
    path = wanted.mount_path
    mount = cri.Mount(
        container_path=path if path.startswith("/") else f"/{path}",
        readonly=wanted.read_only or volume.read_only,
        selinux_relabel=inputs.relabels and volume.relabels,
        propagation=_PROPAGATION.get(wanted.mount_propagation or "", cri.PROPAGATION_PRIVATE),
        recursive_read_only=_is_recursive_read_only(wanted, is_supported=inputs.supports_recursive_read_only),
    )
    if image is not None:
        mount.image.CopyFrom(_image(pod, wanted.name, image, inputs.image_handler))
        mount.image_sub_path = sub_path
    elif sub_path:
        if index not in inputs.sub_paths:
            raise _error(f'failed to prepare subPath for volumeMount "{wanted.name}" of container "{container.name}"')
        mount.host_path = inputs.sub_paths[index]
    else:
        mount.host_path = volume.path
    return mount


def _image(pod: Pod, volume: str, ref: str, handler: str) -> cri.ImageSpec:
    named = next((each.image.reference for each in pod.spec.volumes if each.name == volume and each.image), "")
    annotations = dict(pod.metadata.annotations)
    return cri.ImageSpec(image=ref, user_specified_image=named, annotations=annotations, runtime_handler=handler)


def _file(path: str, source: str, inputs: MountInputs) -> cri.Mount:
    return cri.Mount(container_path=path, host_path=source, selinux_relabel=inputs.relabels)


def _is_recursive_read_only(mount: VolumeMount, *, is_supported: bool) -> bool:
    mode = mount.recursive_read_only
    if mode is None or mode == "Disabled":
        return False
    if not mount.read_only:
        raise _no_recursion(mount, "it is not read-only")
    if mount.mount_propagation not in {None, "None"}:
        raise _no_recursion(mount, f'it is not compatible with propagation "{mount.mount_propagation}"')
    match mode:
        case "IfPossible":
            return is_supported
        case "Enabled" if is_supported:
            return True
        case "Enabled":
            raise _no_recursion(mount, "it is not supported by the runtime")
        case _:
            raise _error(f'failed to resolve recursive read-only mode: unknown recursive read-only mode "{mode}"')


def _no_recursion(mount: VolumeMount, why: str) -> StartError:
    rule = f'volume "{mount.name}" requested recursive read-only mode, but {why}'
    return _error(f"failed to resolve recursive read-only mode: {rule}")


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """Expand; a part of a path that is empty by mistake would mean another directory, so it is an error."""
    if missing := sorted(name for name in names_in(text) if not environment.get(name)):
        raise _error(f"missing value for {', '.join(missing)}")
    return expand(text, environment)


def _error(message: str) -> StartError:
    return StartError(CREATE_CONFIG_ERROR, message)
