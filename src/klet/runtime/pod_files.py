"""The files klet makes for pods: data and log directories, /etc/hosts, termination logs.

Containers with a hostPath may write beside them, so no link is followed below the two roots, and only the names in
`pods/` say which pods have data here: what the log directories are called decides about logs alone.
"""

import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

from klet.aio.threads import Threads
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import HostAlias, Pod
from klet.host.beneath import list_directory, make_directories, make_file, remove_below, write_in_place
from klet.host.errors import HostError
from klet.host.files import read_text
from klet.model.pods import PodUID, uid_of
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
HOSTS = "etc-hosts"
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
        try:
            entries = await self._threads.run(list_directory, self._logs, _log_directory(pod), container)
        except HostError as error:
            logger.warning("Logs not counted", extra={"container": container, "error": str(error)})
            return 0
        return labels.restart_count_from_logs([entry.name for entry in entries if not entry.is_directory])

    async def remove_pod(self, uid: PodUID) -> None:
        """Remove everything a pod had on disk, logs included."""
        await self._threads.run(self._remove, uid)

    async def pods_on_disk(self) -> frozenset[PodUID]:
        """Return pods that have a data directory."""
        entries = await self._threads.run(list_directory, self._pods)
        return frozenset(entry.name for entry in entries if isinstance(entry.name, PodUID))

    def log_path(self, pod: Pod, container: str, restart_count: int) -> Path:
        return labels.pod_log_directory(self._logs, pod) / labels.container_log_path(container, restart_count)

    def _make_pod_directories(self, pod: Pod) -> None:
        for name in ("volumes", "plugins", "containers"):
            make_directories(self._pods, uid_of(pod), name, mode=0o750)
        make_directories(self._logs, _log_directory(pod), mode=0o755)

    def _make_container_files(
        self, pod: Pod, container: Container | EphemeralContainer, pod_ips: tuple[str, ...]
    ) -> ContainerFiles:
        make_directories(self._logs, _log_directory(pod), container.name, mode=0o755)
        return ContainerFiles(
            hosts_file=self._make_hosts(pod, pod_ips),
            termination_log=self._make_termination_log(uid_of(pod), container.name),
        )

    def _make_hosts(self, pod: Pod, pod_ips: tuple[str, ...]) -> str:
        """Write the hosts file. A pod without any address keeps that of its image."""
        if not pod_ips and not pod.spec.host_network:
            return ""
        # Containers that run have this very file mounted: a new file in its place would not reach them.
        text = self._hosts(pod, pod_ips)
        write_in_place(self._pods, uid_of(pod), HOSTS, data=text.encode(), mode=0o644)
        return str(self._pods / uid_of(pod) / HOSTS)

    def _make_termination_log(self, uid: PodUID, container: str) -> str:
        """Make a new termination message file for one start. A failure is only logged: it is not vital."""
        names = (uid, "containers", container, secrets.token_hex(4))
        try:
            make_directories(self._pods, *names[:-1], mode=0o750)
            make_file(self._pods, *names, mode=0o666)
        except HostError as error:
            logger.warning("No termination log", extra={"container": container, "error": str(error)})
            return ""
        return str(self._pods.joinpath(*names))

    def _hosts(self, pod: Pod, pod_ips: tuple[str, ...]) -> str:
        if pod.spec.host_network:
            return _HOST_NETWORK_HEAD + read_text(Path("/etc/hosts")) + _aliases(pod.spec.host_aliases)
        host, domain = hostname_and_domain(pod, cluster_domain=self._cluster_domain)
        names = f"{host}.{domain}\t{host}" if domain else host
        return _HOSTS_HEAD + "".join(f"{ip}\t{names}\n" for ip in pod_ips) + _aliases(pod.spec.host_aliases)

    def _remove(self, uid: PodUID) -> None:
        remove_below(self._pods, uid)
        for entry in list_directory(self._logs):
            if labels.log_directory_owner(entry.name) == uid:
                remove_below(self._logs, entry.name)


def _aliases(aliases: Sequence[HostAlias]) -> str:
    lines = [f"{alias.ip}\t" + "\t".join(alias.hostnames) + "\n" for alias in aliases]
    return "\n# Entries added by HostAliases.\n" + "".join(lines) if lines else ""


def _log_directory(pod: Pod) -> str:
    return labels.log_directory_name(pod.metadata.namespace, pod.metadata.name, uid_of(pod))
