"""Which volumes of a pod are used, and whom their files belong to. Pure."""

import posixpath
from collections.abc import Iterator

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.volumes.errors import VolumeSetupError


def used_volumes(pod: Pod) -> frozenset[str]:
    """Return names that a container mounts or has as a device. Others are never set up."""
    return mounted_volumes(pod) | device_volumes(pod)


def mounted_volumes(pod: Pod) -> frozenset[str]:
    """Return names that a container mounts."""
    return frozenset(mount.name for container in _containers(pod) for mount in container.volume_mounts)


def device_volumes(pod: Pod) -> frozenset[str]:
    """Return names that a container has as a device."""
    return frozenset(device.name for container in _containers(pod) for device in container.volume_devices)


def containers_with(pod: Pod, names: frozenset[str]) -> Iterator[Container | EphemeralContainer]:
    """Yield the containers that mount one of these volumes."""
    return (each for each in _containers(pod) if any(mount.name in names for mount in each.volume_mounts))


def fs_group(pod: Pod) -> int | None:
    context = pod.spec.security_context
    return context.fs_group if context is not None else None


def fs_group_change_policy(pod: Pod) -> str | None:
    context = pod.spec.security_context
    return context.fs_group_change_policy if context is not None else None


def fs_user(pod: Pod) -> int | None:
    """Return the user that all containers run as, if every one of them says so and they agree."""
    users = {_run_as_user(pod, container) for container in _containers(pod)}
    return users.pop() if len(users) == 1 else None


def nested_mount_points(pod: Pod, volume: str) -> list[str]:
    """Return directories of a volume on which containers mount something else; relative to it.

    The volume is read-only for them, so the runtime could not make these.
    """
    return [point for container in _containers(pod) for point in _nested_in(container, volume)]


def _nested_in(container: Container | EphemeralContainer, volume: str) -> Iterator[str]:
    every = sorted(posixpath.normpath(mount.mount_path) for mount in container.volume_mounts)
    for mount in container.volume_mounts:
        if mount.name != volume:
            continue
        own = posixpath.normpath(mount.mount_path)
        if own.startswith("../"):
            # A container must not make us create directories outside of it.
            raise VolumeSetupError(f"invalid container mount point {own}")
        found: list[str] = []
        for other in every:
            if other.startswith(f"{own}/") and not any(other.startswith(f"{above}/") for above in found):
                found.append(other)
                yield other.removeprefix(f"{own}/")


def _containers(pod: Pod) -> Iterator[Container | EphemeralContainer]:
    yield from pod.spec.init_containers
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers


def _run_as_user(pod: Pod, container: Container | EphemeralContainer) -> int | None:
    own, shared = container.security_context, pod.spec.security_context
    if own is not None and own.run_as_user is not None:
        return own.run_as_user
    return shared.run_as_user if shared is not None else None
