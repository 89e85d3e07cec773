"""Reads what a container's environment refers to: config maps, secrets, services, files on its volumes."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from klet.aio.threads import Threads
from klet.api.config import ConfigMap, Secret
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.service import Service
from klet.errors import KletError
from klet.host.contained import read_contained
from klet.model.allocation import PodAllocation
from klet.model.network import order_ips
from klet.model.objects import container_config_maps, container_secrets
from klet.model.pods import is_static
from klet.model.roles import NodeResources, ObjectReader
from klet.runtime.environment.env import EnvironmentInputs
from klet.runtime.environment.env_files import EnvFile, read_env_file

T = TypeVar("T")
Key = TypeVar("Key")

FILE_LIMIT = 1 << 20
"""Bytes of a file with environment variables: a process can have no more than that in all."""


class ServiceReader(Protocol):
    """Knows the services of the cluster."""

    def services(self) -> Sequence[Service] | None:
        """Return all of them; None before they have been read for the first time."""
        ...

    async def until_read(self) -> None:
        """Return when they have been read, or when there is no use in waiting any longer."""
        ...


class FileReader(Protocol):
    """Reads files on volumes, which pods can write to."""

    async def read(self, root: str, path: str, names: frozenset[str]) -> EnvFile:
        """Return variables of a file below the root, wherever links in it point to."""
        ...


class NoApiServer(KletError):
    """The object is on an API server, and there is none."""


class NoObjects:
    """The objects of a node without an API server."""

    async def config_map(self, namespace: str, name: str) -> ConfigMap:
        raise NoApiServer(f"couldn't get configMap {namespace}/{name}, no kubeClient defined")

    async def secret(self, namespace: str, name: str) -> Secret:
        raise NoApiServer(f"couldn't get secret {namespace}/{name}, no kubeClient defined")

    def services(self) -> Sequence[Service] | None:
        return ()

    async def until_read(self) -> None:
        """Return at once: there is nothing to read."""


class VolumeFiles:
    """Files on volumes, on threads of their own."""

    def __init__(self, *, threads: Threads) -> None:
        self._threads = threads

    async def read(self, root: str, path: str, names: frozenset[str]) -> EnvFile:
        # Reading the lines is work for a thread, too: the pod decides how many there are.
        return await self._threads.run(_read_env_file, Path(root), path, names)


def _read_env_file(root: Path, path: str, names: frozenset[str]) -> EnvFile:
    return read_env_file(read_contained(root, path, limit=FILE_LIMIT), names)


class EnvironmentReader:
    """Collects the inputs of one container's environment, and nothing that it does not refer to."""

    def __init__(
        self,
        *,
        objects: ObjectReader,
        services: ServiceReader,
        node: NodeResources,
        files: FileReader,
        node_ips: Callable[[], tuple[str, ...]],
        prefer_ipv6: bool = False,
    ) -> None:
        self._objects = objects
        self._services = services
        self._node = node
        self._files = files
        self._node_ips = node_ips
        self._prefer_ipv6 = prefer_ipv6

    async def gather(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        *,
        allocation: PodAllocation,
        pod_ips: tuple[str, ...],
        volumes: Mapping[str, str],
        devices: Mapping[str, str],
    ) -> EnvironmentInputs:
        namespace, files = pod.metadata.namespace, files_of(container)
        if not is_static(pod):
            await self._services.until_read()
        return EnvironmentInputs(
            allocation=allocation,
            pod_ips=order_ips(pod_ips, prefer_ipv6=self._prefer_ipv6),
            node_ips=self._node_ips(),
            config_maps=await _read_all(
                container_config_maps(container), lambda name: self._config_map(namespace, name)
            ),
            secrets=await _read_all(container_secrets(container), lambda name: self._secret(namespace, name)),
            files=await _read_all(
                [found for found in files if found[0] in volumes],
                lambda found: self._files.read(volumes[found[0]], found[1], files[found]),
            ),
            services=self._services.services(),
            allocatable=self._node.allocatable(),
            devices=devices,
        )

    async def _config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        return (await self._objects.config_map(namespace, name)).data

    async def _secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        return (await self._objects.secret(namespace, name)).data


def files_of(container: Container | EphemeralContainer) -> dict[tuple[str, str], frozenset[str]]:
    """Return the files that a container's environment refers to, by volume and path, and the variables in each."""
    names: dict[tuple[str, str], set[str]] = {}
    for variable in container.env:
        wanted = variable.value_from.file_key_ref if variable.value_from is not None else None
        if wanted is not None:
            names.setdefault((wanted.volume_name, wanted.path), set()).add(wanted.key)
    return {file: frozenset(keys) for file, keys in names.items()}


async def _read_all(wanted: Iterable[Key], read: Callable[[Key], Awaitable[T]]) -> dict[Key, T | KletError]:
    """Read each object once. One that cannot be read becomes an error, which counts only where it is needed."""
    found: dict[Key, T | KletError] = {}
    for key in dict.fromkeys(wanted):
        try:
            found[key] = await read(key)
        except KletError as error:
            found[key] = error
    return found
