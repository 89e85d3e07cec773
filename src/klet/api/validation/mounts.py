"""Rules for volume mounts and block devices of a container."""

from collections.abc import Mapping
from typing import Final

from klet.api.container import Container, EphemeralContainer, VolumeMount
from klet.api.validation import formats
from klet.api.validation.errors import (
    FieldErrors,
    forbidden,
    invalid,
    invalid_each,
    not_found,
    not_supported,
    required,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.volume import Volume

_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE: Final = ("Disabled", "Enabled", "IfPossible")


def validate_volume_mounts(
    container: Container | EphemeralContainer, volumes: Mapping[str, Volume], path: FieldPath
) -> FieldErrors:
    seen: set[str] = set()
    devices = {device.name: device.device_path for device in container.volume_devices}
    for position, mount in enumerate(container.volume_mounts):
        here = path.at(position)
        if not mount.name:
            yield required(here.child("name"))
        if mount.name not in volumes:
            yield not_found(here.child("name"), mount.name)
        if not mount.mount_path:
            yield required(here.child("mountPath"))
        if mount.mount_path in seen:
            yield invalid(here.child("mountPath"), mount.mount_path, "must be unique")
        seen.add(mount.mount_path)
        if devices:
            yield from _not_among_devices(mount, devices, here)
        if mount.sub_path or mount.sub_path_expr:
            yield from _sub_paths(mount, path, here)
        if mount.mount_propagation is not None:
            yield from _propagation(mount.mount_propagation, container, path.child("mountPropagation"))
        if mount.recursive_read_only is not None:
            yield from _recursive_read_only(mount, mount.recursive_read_only, path.child("recursiveReadOnly"))


def validate_volume_devices(
    container: Container | EphemeralContainer, volumes: Mapping[str, Volume], path: FieldPath
) -> FieldErrors:
    names: set[str] = set()
    paths: set[str] = set()
    mounts = {mount.name: mount.mount_path for mount in container.volume_mounts}
    for position, device in enumerate(container.volume_devices):
        name_path, device_path = path.at(position).child("name"), path.at(position).child("devicePath")
        yield from _device_name(device.name, names, volumes, name_path)
        if not device.device_path:
            yield required(device_path)
        if device.device_path in paths:
            yield invalid(device_path, device.device_path, "must be unique")
        if formats.has_backsteps(device.device_path):
            yield invalid(device_path, device.device_path, "can not contain backsteps ('..')")
        else:
            paths.add(device.device_path)
        if device.name in mounts:
            yield invalid(name_path, device.name, "must not already exist in volumeMounts")
        if device.device_path in mounts.values():
            yield invalid(device_path, device.device_path, "must not already exist as a path in volumeMounts")
        if device.name:
            names.add(device.name)


def _not_among_devices(mount: VolumeMount, devices: Mapping[str, str], path: FieldPath) -> FieldErrors:
    if mount.name in devices:
        yield invalid(path.child("name"), mount.name, "must not already exist in volumeDevices")
    if mount.mount_path in devices.values():
        message = "must not already exist as a path in volumeDevices"
        yield invalid(path.child("mountPath"), mount.mount_path, message)


def _sub_paths(mount: VolumeMount, list_path: FieldPath, path: FieldPath) -> FieldErrors:
    # Format errors carry the path of the list, without the position of the mount.
    if mount.sub_path:
        yield from invalid_each(list_path.child("subPath"), mount.sub_path, formats.local_path(mount.sub_path))
    if mount.sub_path_expr:
        if mount.sub_path:
            message = "subPathExpr and subPath are mutually exclusive"
            yield invalid(path.child("subPathExpr"), mount.sub_path_expr, message)
        messages = formats.local_path(mount.sub_path_expr)
        yield from invalid_each(list_path.child("subPathExpr"), mount.sub_path_expr, messages)


def _propagation(mode: str, container: Container | EphemeralContainer, path: FieldPath) -> FieldErrors:
    if mode not in _PROPAGATIONS:
        yield not_supported(path, mode, _PROPAGATIONS)
    privileged = container.security_context is not None and container.security_context.privileged
    if mode == "Bidirectional" and not privileged:
        yield forbidden(path, "Bidirectional mount propagation is available only to privileged containers")


def _recursive_read_only(mount: VolumeMount, mode: str, path: FieldPath) -> FieldErrors:
    if mode not in _RECURSIVE:
        yield not_supported(path, mode, _RECURSIVE)
    elif mode != "Disabled":
        if not mount.read_only:
            yield forbidden(path, "may only be specified when readOnly is true")
        if mount.mount_propagation not in {None, "None"}:
            yield forbidden(path, "may only be specified when mountPropagation is None or not specified")


def _device_name(name: str, seen: set[str], volumes: Mapping[str, Volume], path: FieldPath) -> FieldErrors:
    if not name:
        yield required(path)
    if name in seen:
        yield invalid(path, name, "must be unique")
    volume = volumes.get(name)
    if volume is None:
        yield not_found(path, name)
    elif volume.persistent_volume_claim is None and volume.ephemeral is None:
        message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        yield invalid(path, name, message)
