"""Collects what goes into a container's configuration, in upstream's order: the first thing missing is reported.

Upstream's GenerateRunContainerOptions.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.cri.errors import CriError
from klet.errors import KletError
from klet.model.allocation import PodAllocation
from klet.model.images import PresentImage
from klet.model.pods import PodUID, uid_of
from klet.model.roles import ContainerPins
from klet.model.runtime import SandboxId, SandboxRecord
from klet.model.volumes import HostVolume, extra_groups
from klet.runtime.config.container_config import ContainerInputs, ContainerSettings, build_container_config
from klet.runtime.config.container_options import DeviceOptions
from klet.runtime.config.mounts import (
    BlockVolume,
    MountInputs,
    asks_for_recursive_read_only,
    build_block_devices,
    resolve_sub_path,
)
from klet.runtime.config.sub_paths import SubPathError, SubPaths
from klet.runtime.environment.env import build_environment
from klet.runtime.environment.env_sources import EnvironmentReader
from klet.runtime.errors import CREATE_CONFIG_ERROR, StartError
from klet.runtime.runtime_class import Handlers
from klet.wire import cri_v1_pb2 as cri


class ReadySandbox(Struct, frozen=True, kw_only=True):
    """The sandbox of a pod, ready to start containers in."""

    sandbox_id: SandboxId
    sandbox_config: cri.PodSandboxConfig
    allocation: PodAllocation
    """The resources of the pod: the sandbox and its containers all get their parts of this one value."""
    pod_ips: tuple[str, ...]
    handler: str = ""
    """The runtime handler that the sandbox runs with."""
    image_handler: str = ""
    """The same for a runtime that keeps images for each of its handlers; otherwise it is not named."""
    made: SandboxRecord | None = None
    """The sandbox as the runtime shows it, if it was just made."""

    @property
    def user_namespace(self) -> cri.UserNamespace | None:
        options = self.sandbox_config.linux.security_context.namespace_options
        return options.userns_options if options.HasField("userns_options") else None


class ContainerFiles(Struct, frozen=True, kw_only=True):
    """Host files that are made for one start of a container."""

    hosts_file: str
    termination_log: str


class StartFacts(Struct, frozen=True, kw_only=True):
    """What is settled about a start before its configuration is made."""

    restart_count: int
    image: PresentImage
    image_volumes: Mapping[str, str] = field(default_factory=dict)
    """References of the images that the container mounts, by volume."""
    target_id: str = ""


class ContainerFileMaker(Protocol):
    """Makes the files a container needs before it is created."""

    async def prepare_container(
        self, pod: Pod, container: Container | EphemeralContainer, *, pod_ips: tuple[str, ...]
    ) -> ContainerFiles: ...


class MountableVolumes(Protocol):
    """Knows the volumes that containers can mount."""

    def of_pod(self, uid: PodUID) -> Mapping[str, HostVolume]:
        """Return them by their names in the pod."""
        ...


class ContainerPlanner:
    """Says how a container is to be created."""

    def __init__(
        self,
        *,
        files: ContainerFileMaker,
        volumes: MountableVolumes,
        sub_paths: SubPaths,
        environment: EnvironmentReader,
        devices: DeviceOptions,
        pins: ContainerPins,
        handlers: Handlers,
        settings: ContainerSettings,
    ) -> None:
        self._files = files
        self._volumes = volumes
        self._sub_paths = sub_paths
        self._environment = environment
        self._devices = devices
        self._pins = pins
        self._handlers = handlers
        self._settings = settings

    async def plan(
        self, pod: Pod, container: Container | EphemeralContainer, sandbox: ReadySandbox, facts: StartFacts
    ) -> cri.ContainerConfig:
        """Return the configuration; whatever is in its way is a StartError."""
        try:
            return await self._plan(pod, container, sandbox, facts)
        except StartError:
            raise
        except CriError as error:
            raise StartError(CREATE_CONFIG_ERROR, error.message) from error
        except KletError as error:
            raise StartError(CREATE_CONFIG_ERROR, str(error)) from error

    async def _plan(
        self, pod: Pod, container: Container | EphemeralContainer, sandbox: ReadySandbox, facts: StartFacts
    ) -> cri.ContainerConfig:
        options = await self._devices.options_for(pod, container, sandbox.allocation.of(container.name))
        files = await self._files.prepare_container(pod, container, pod_ips=sandbox.pod_ips)
        volumes = self._volumes.of_pod(uid_of(pod))
        block_volumes = {
            name: BlockVolume(path=volume.device, read_only=volume.read_only)
            for name, volume in volumes.items()
            if volume.device
        }
        build_block_devices(container, block_volumes)  # their errors are reported before all others
        environment = build_environment(
            pod,
            container,
            await self._environment.gather(
                pod,
                container,
                allocation=sandbox.allocation,
                pod_ips=sandbox.pod_ips,
                volumes={name: volume.path for name, volume in volumes.items() if volume.path},
                devices=options.environment,
            ),
        )
        inputs = ContainerInputs(
            restart_count=facts.restart_count,
            allocation=sandbox.allocation,
            image_ref=facts.image.ref,
            image_user=facts.image.user,
            environment=environment,
            mounts=MountInputs(
                volumes=volumes,
                sub_paths=await self._prepare_sub_paths(pod, container, volumes, environment),
                images=facts.image_volumes,
                image_handler=sandbox.image_handler,
                block_volumes=block_volumes,
                hosts_file=files.hosts_file,
                termination_log=files.termination_log,
                supports_recursive_read_only=await self._has_recursive_read_only(container, sandbox),
                relabels=self._settings.relabels,
            ),
            options=options,
            pins=self._pins.pins_of(uid_of(pod), container.name),
            user_namespace=sandbox.user_namespace,
            target_id=facts.target_id,
            extra_groups=extra_groups(pod, volumes.values()),
        )
        return build_container_config(pod, container, inputs, self._settings)

    async def _prepare_sub_paths(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        volumes: Mapping[str, HostVolume],
        environment: Mapping[str, str],
    ) -> dict[int, str]:
        ready: dict[int, str] = {}
        for index, mount in enumerate(container.volume_mounts):
            volume = volumes.get(mount.name)
            if volume is None or not volume.path or not (path := resolve_sub_path(mount, environment)):
                continue
            try:
                ready[index] = await self._sub_paths.prepare(
                    uid_of(pod),
                    container.name,
                    index,
                    volume=volume.inner_name or mount.name,
                    root=volume.path,
                    path=path,
                )
            except SubPathError as error:
                # The cause stays in the journal: in a status it could reveal files of the host.
                where = f'volumeMount "{mount.name}" of container "{container.name}"'
                raise StartError(CREATE_CONFIG_ERROR, f"failed to {error.step} for {where}") from error
        return ready

    async def _has_recursive_read_only(self, container: Container | EphemeralContainer, sandbox: ReadySandbox) -> bool:
        if not asks_for_recursive_read_only(container.volume_mounts):
            return False
        return (await self._handlers.features_of(sandbox.handler)).recursive_read_only_mounts
