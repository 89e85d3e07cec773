"""The files klet makes for pods: data and log directories, /etc/hosts, termination logs."""

import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

from klet.aio.threads import Threads
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import HostAlias, Pod
from klet.host.errors import HostError
from klet.host.files import read_text, remove_tree
from klet.model.pods import PodUID
from klet.runtime import labels
from klet.runtime.config.container_planner import ContainerFiles
from klet.runtime.config.sandbox_config import hostname_and_domain

logger = logging.getLogger(__name__)

_HOSTS_HEAD = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""
_HOST_NETWORK_HEAD = "# Kubernetes-managed hosts file (host network).\n"


class PodFiles:
    """Makes and removes what a pod has on disk."""

    def __init__(self, *, root: Path, logs: Path, cluster_domain: str, threads: Threads) -> None:
        self._pods = root / "pods"
        self._logs = logs
        self._cluster_domain = cluster_domain
        self._threads = threads

    async def prepare_pod(self, pod: Pod) -> None:
        """Make the pod's directories."""
        await self._threads.run(self._make_pod_directories, pod)

    async def prepare_container(
        self, pod: Pod, container: Container | EphemeralContainer, *, pod_ips: tuple[str, ...]
    ) -> ContainerFiles:
        return await self._threads.run(self._make_container_files, pod, container, pod_ips)

    async def next_restart_count(self, pod: Pod, container: str) -> int:
        directory = labels.pod_log_directory(self._logs, pod) / container
        try:
            names = await self._threads.run(_files_in, directory)
        except HostError as error:
            logger.warning("Logs not counted", extra={"container": container, "error": str(error)})
            return 0
        return labels.restart_count_from_logs(names)

    async def remove_pod(self, uid: PodUID) -> None:
        """Remove everything a pod had on disk, logs included."""
        await self._threads.run(self._remove, uid)

    async def pods_on_disk(self) -> frozenset[PodUID]:
        """Pods that have a data or a log directory."""
        data, logs = await self._threads.run(lambda: (_names_in(self._pods), _names_in(self._logs)))
        named = [name.rpartition("_")[2] for name in logs if name.count("_") == 2]
        return frozenset(PodUID(name) for name in (*data, *named))

    def log_path(self, pod: Pod, container: str, restart_count: int) -> Path:
        return labels.pod_log_directory(self._logs, pod) / labels.container_log_path(container, restart_count)

    def _make_pod_directories(self, pod: Pod) -> None:
        for name in ("", "volumes", "plugins", "containers"):
            _make_directory(self._pods / pod.metadata.uid / name, 0o750)
        _make_directory(labels.pod_log_directory(self._logs, pod), 0o755)

    def _make_container_files(
        self, pod: Pod, container: Container | EphemeralContainer, pod_ips: tuple[str, ...]
    ) -> ContainerFiles:
        directory = self._pods / pod.metadata.uid
        _make_directory(labels.pod_log_directory(self._logs, pod) / container.name, 0o755)
        return ContainerFiles(
            hosts_file=self._make_hosts(pod, directory, pod_ips),
            termination_log=_make_termination_log(directory / "containers" / container.name),
        )

    def _make_hosts(self, pod: Pod, directory: Path, pod_ips: tuple[str, ...]) -> str:
        """A pod without any address keeps the hosts file of its image."""
        if not pod_ips and not pod.spec.host_network:
            return ""
        hosts = directory / "etc-hosts"
        _write_in_place(hosts, self._hosts(pod, pod_ips))
        return str(hosts)

    def _hosts(self, pod: Pod, pod_ips: tuple[str, ...]) -> str:
        if pod.spec.host_network:
            return _HOST_NETWORK_HEAD + read_text(Path("/etc/hosts")) + _aliases(pod.spec.host_aliases)
        host, domain = hostname_and_domain(pod, cluster_domain=self._cluster_domain)
        names = f"{host}.{domain}\t{host}" if domain else host
        return _HOSTS_HEAD + "".join(f"{ip}\t{names}\n" for ip in pod_ips) + _aliases(pod.spec.host_aliases)

    def _remove(self, uid: PodUID) -> None:
        remove_tree(self._pods / uid)
        for name in _names_in(self._logs):
            if name.rpartition("_")[2] == uid:
                remove_tree(self._logs / name)


def _aliases(aliases: Sequence[HostAlias]) -> str:
    lines = [f"{alias.ip}\t" + "\t".join(alias.hostnames) + "\n" for alias in aliases]
    return "\n# Entries added by HostAliases.\n" + "".join(lines) if lines else ""


def _make_directory(path: Path, mode: int) -> None:
    """Make a directory with exactly that mode, whatever the process's umask is."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
    except OSError as error:
        raise HostError(f"cannot make {path}: {error.strerror}") from error


def _write_in_place(path: Path, text: str) -> None:
    """Containers that run have this very file mounted: a new file in its place would not reach them."""
    try:
        path.write_text(text)
        path.chmod(0o644)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from error


def _make_termination_log(directory: Path) -> str:
    """A new file for the last words of one start. A container can live without it, so a failure is only logged."""
    path = directory / secrets.token_hex(4)
    try:
        _make_directory(directory, 0o750)
        path.touch()
        path.chmod(0o666)
    except (HostError, OSError) as error:
        logger.warning("No termination log", extra={"container": directory.name, "error": str(error)})
        return ""
    return str(path)


def _names_in(directory: Path) -> list[str]:
    return [entry.name for entry in _entries(directory)]


def _files_in(directory: Path) -> list[str]:
    return [entry.name for entry in _entries(directory) if not entry.is_dir()]


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HostError(f"cannot list {directory}: {error.strerror}") from error
