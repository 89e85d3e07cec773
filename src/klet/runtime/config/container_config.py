"""The CRI configuration of one container (generateContainerConfig). Pure."""

from collections.abc import Mapping

from msgspec import Struct, field

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.model.allocation import NO_PINS, Pins, PodAllocation
from klet.model.expansion import expand_all
from klet.model.images import ImageUser
from klet.runtime import labels
from klet.runtime.config.container_options import ContainerOptions
from klet.runtime.config.linux_resources import ResourceRules, build_container_resources
from klet.runtime.config.mounts import MountInputs, build_block_devices, build_mounts
from klet.runtime.config.security import SecuritySettings, build_security_context, check_non_root
from klet.runtime.stop_signals import RUNTIME_DEFAULT, wanted_stop_signal
from klet.wire import cri_v1_pb2 as cri


class ContainerInputs(Struct, frozen=True, kw_only=True):
    """What a container gets besides its spec."""

    restart_count: int
    allocation: PodAllocation
    image_ref: str
    image_user: ImageUser
    environment: Mapping[str, str]
    mounts: MountInputs
    options: ContainerOptions = field(default_factory=ContainerOptions)
    pins: Pins = NO_PINS
    user_namespace: cri.UserNamespace | None = None
    target_id: str = ""
    """The container whose processes this one shares."""
    extra_groups: tuple[int, ...] = ()
    """Groups of the pod's volumes."""


class ContainerSettings(Struct, frozen=True, kw_only=True):
    """What the node adds to every container."""

    security: SecuritySettings
    resources: ResourceRules = field(default_factory=ResourceRules)
    relabels: bool = False
    """Whether the host has SELinux."""
    stop_signals: bool = False
    """Whether containers may choose the signal that stops them."""


def build_container_config(
    pod: Pod, container: Container | EphemeralContainer, inputs: ContainerInputs, settings: ContainerSettings
) -> cri.ContainerConfig:
    """Describe the container to the runtime."""
    environment, options = inputs.environment, inputs.options
    mounts = _mounts(pod, container, inputs)
    check_non_root(pod, container, inputs.image_user)
    own_annotations = labels.container_annotations(pod, container, restart_count=inputs.restart_count)
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=container.name, attempt=inputs.restart_count),
        image=cri.ImageSpec(image=inputs.image_ref, user_specified_image=container.image),
        command=expand_all(container.command, environment),
        args=expand_all(container.args, environment),
        working_dir=container.working_dir,
        envs=[_variable(name, value) for name, value in environment.items()],
        mounts=mounts,
        devices=[*_devices(options), *build_block_devices(container, inputs.mounts.block_volumes)],
        CDI_devices=[cri.CDIDevice(name=name) for name in options.cdi_devices],
        labels=labels.container_labels(pod, container),
        annotations={**options.annotations, **own_annotations},
        log_path=labels.container_log_path(container.name, inputs.restart_count),
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        stop_signal=wanted_stop_signal(container) if settings.stop_signals else RUNTIME_DEFAULT,
        linux=cri.LinuxContainerConfig(
            resources=build_container_resources(
                pod, container.name, inputs.allocation, settings.resources, pins=inputs.pins
            ),
            security_context=build_security_context(
                pod,
                container,
                inputs.image_user,
                settings.security,
                user_namespace=inputs.user_namespace,
                target_id=inputs.target_id,
                extra_groups=inputs.extra_groups,
            ),
        ),
    )


def _variable(name: str, value: str) -> cri.KeyValue:
    # What came out of a secret as bytes goes out as the same bytes.
    return cri.KeyValue(key=name, value=value.encode(errors="surrogateescape"))


def _mounts(pod: Pod, container: Container | EphemeralContainer, inputs: ContainerInputs) -> list[cri.Mount]:
    """Build the mounts, those of devices first. In a user namespace all are mapped to the host ids of the pod."""
    mounts = [
        cri.Mount(container_path=mount.container_path, host_path=mount.host_path, readonly=mount.read_only)
        for mount in inputs.options.mounts
    ]
    mounts += build_mounts(pod, container, inputs.mounts, environment=inputs.environment)
    if inputs.user_namespace is not None:
        for mount in mounts:
            mount.uidMappings.extend(inputs.user_namespace.uids)
            mount.gidMappings.extend(inputs.user_namespace.gids)
    return mounts


def _devices(options: ContainerOptions) -> list[cri.Device]:
    return [
        cri.Device(container_path=node.container_path, host_path=node.host_path, permissions=node.permissions)
        for node in options.devices
    ]
