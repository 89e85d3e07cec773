"""The CRI configuration of one container (generateContainerConfig)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from klet.api.container import Container, EphemeralContainer, VolumeMount
from klet.api.pod import Pod
from klet.model.expansion import expand
from klet.runtime import labels
from klet.runtime.errors import CREATE_CONFIG_ERROR, StartError
from klet.runtime.linux_resources import ResourceRules, build_container_resources
from klet.runtime.security import ImageUser, SecuritySettings, build_security_context
from klet.wire import cri_v1_pb2 as cri

HOSTS_PATH = "/etc/hosts"
_PROPAGATION = {
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerInputs:
    """What a container gets besides its spec."""

    restart_count: int
    image_ref: str
    image_user: ImageUser
    environment: Mapping[str, str]
    volume_paths: Mapping[str, str]
    """Where each volume of the pod lies on the host."""
    hosts_file: str = ""
    termination_log: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """What the node adds to every container."""

    security: SecuritySettings
    resources: ResourceRules = field(default_factory=ResourceRules)


def build_container_config(
    pod: Pod, container: Container | EphemeralContainer, inputs: ContainerInputs, settings: ContainerSettings
) -> cri.ContainerConfig:
    """Describe the container to the runtime."""
    environment = inputs.environment
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=container.name, attempt=inputs.restart_count),
        image=cri.ImageSpec(image=inputs.image_ref, user_specified_image=container.image),
        command=[expand(word, environment) for word in container.command],
        args=[expand(word, environment) for word in container.args],
        working_dir=container.working_dir,
        envs=[cri.KeyValue(key=key, value=value.encode()) for key, value in environment.items()],
        mounts=_mounts(container, inputs),
        labels=labels.container_labels(pod, container),
        annotations=labels.container_annotations(pod, container, restart_count=inputs.restart_count),
        log_path=labels.container_log_path(container.name, inputs.restart_count),
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        linux=cri.LinuxContainerConfig(
            resources=build_container_resources(pod, container, settings.resources),
            security_context=build_security_context(pod, container, inputs.image_user, settings.security),
        ),
    )


def _mounts(container: Container | EphemeralContainer, inputs: ContainerInputs) -> list[cri.Mount]:
    mounts = [_mount(container.name, mount, inputs.volume_paths) for mount in container.volume_mounts]
    taken = {mount.mount_path for mount in container.volume_mounts}
    if inputs.hosts_file and HOSTS_PATH not in taken:
        mounts.append(cri.Mount(container_path=HOSTS_PATH, host_path=inputs.hosts_file))
    if inputs.termination_log and container.termination_message_path:
        mounts.append(cri.Mount(container_path=container.termination_message_path, host_path=inputs.termination_log))
    return mounts


def _mount(container: str, mount: VolumeMount, paths: Mapping[str, str]) -> cri.Mount:
    if mount.name not in paths:
        message = f'cannot find volume "{mount.name}" to mount into container "{container}"'
        raise StartError(CREATE_CONFIG_ERROR, message)
    if mount.sub_path or mount.sub_path_expr:
        message = f'volumeMount "{mount.name}" of container "{container}": subPath is not built yet'
        raise StartError(CREATE_CONFIG_ERROR, message)
    path = mount.mount_path
    return cri.Mount(
        container_path=path if path.startswith("/") else f"/{path}",
        host_path=paths[mount.name],
        readonly=mount.read_only,
        propagation=_PROPAGATION.get(mount.mount_propagation or "", cri.PROPAGATION_PRIVATE),
    )
