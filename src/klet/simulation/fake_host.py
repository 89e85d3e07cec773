"""The pods' files and cgroups of a simulated machine: they exist only by name, and outlive the agent."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.host.addresses import AddressFacts, IPAddress
from klet.host.disk import FilesystemUsage
from klet.host.disk_usage import DiskReading, DiskTarget, DiskUsage, NotMeasured
from klet.host.errors import CgroupError, HostError
from klet.host.machine.info import MachineInfo, SystemVersions
from klet.logs.line import parse_cri_line
from klet.logs.rotated_files import LogProblem
from klet.logs.rotation_plan import COMPRESSED, plan_rotation
from klet.model.allocation import PodAllocation
from klet.model.network import DnsConfig
from klet.model.pods import PodUID, uid_of
from klet.model.saved_state import SavedState
from klet.node.boots import BootRecord
from klet.resources.qos_cgroups import RepairedCgroup
from klet.runtime import labels
from klet.runtime.config.container_planner import ContainerFiles
from klet.runtime.environment.env_files import EnvFile
from klet.runtime.log_files import LogDirectory
from klet.testing.fake_runtime import MemorySink
from klet.volumes.disk import FoundVolume
from klet.volumes.plugins.base import MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.spec import VolumeSpec

LOGS = Path("/var/log/pods")
ADDRESS = ip_address("192.0.2.10")
_PREFIX = f"{LOGS}/"


class MemoryMappings:
    """The users of pods, in a file of each pod's directory."""

    def __init__(self) -> None:
        self.written: dict[PodUID, bytes] = {}

    async def read(self, uid: PodUID) -> bytes | None:
        return self.written.get(uid)

    async def write(self, uid: PodUID, data: bytes) -> None:
        self.written[uid] = data

    async def remove(self, uid: PodUID) -> None:
        self.written.pop(uid, None)


class MemoryFiles:
    """Pod directories by name; log directories are where the fake runtime writes them."""

    def __init__(self, *, sink: MemorySink | None = None) -> None:
        self.pods: set[PodUID] = set()
        self.refuses = ""
        """Why nothing can be removed at the moment."""
        self.sink = sink or MemorySink()
        self.mappings = MemoryMappings()

    async def prepare_pod(self, pod: Pod) -> None:
        self.pods.add(uid_of(pod))

    async def prepare_container(
        self,
        pod: Pod,
        container: Container | EphemeralContainer,
        *,
        pod_ips: tuple[str, ...],  # noqa: ARG002 - the port's signature
    ) -> ContainerFiles:
        base = f"/pods/{pod.metadata.uid}"
        return ContainerFiles(
            hosts_file=f"{base}/etc-hosts",
            termination_log=f"{base}/containers/{container.name}",
        )

    async def next_restart_count(self, pod: Pod, container: str) -> int:
        directory = f"{labels.pod_log_directory(LOGS, pod) / container}/"
        names = [path.removeprefix(directory) for path in self.sink.paths() if path.startswith(directory)]
        return labels.restart_count_from_logs(names)

    async def remove_pod(self, uid: PodUID) -> None:
        if self.refuses:
            raise HostError(self.refuses)
        self.pods.discard(uid)
        await self.mappings.remove(uid)
        for path in self.sink.paths():
            if _owner(path) == uid:
                self.sink.remove(path)

    async def pods_on_disk(self) -> frozenset[PodUID]:
        return frozenset(self.pods)

    def pods_with_logs(self) -> set[PodUID]:
        return {_owner(path) for path in self.sink.paths() if path.startswith(_PREFIX)}


class MemoryLogs:
    """The logs that the fake runtime writes, and links to them by name."""

    def __init__(self, *, sink: MemorySink) -> None:
        self.links: dict[str, str] = {}
        self._sink = sink

    async def link(self, name: str, log: str) -> None:
        if log in self._sink.paths():
            self.links[name] = log

    async def unlink(self, name: str) -> None:
        self.links.pop(name, None)

    async def remove_log(self, log: str) -> None:
        for path in self._sink.paths():
            if path.startswith(log):
                self._sink.remove(path)

    async def make_way(self, log: str) -> None:
        """Do nothing: only the fake runtime writes here."""

    async def measure(self, paths: Collection[str]) -> Mapping[str, int | LogProblem]:
        contents = ((path, self._sink.read(path)) for path in paths)
        return {
            path: LogProblem("there is no log", is_missing=True) if content is None else len(content)
            for path, content in contents
        }

    async def tidy(self, path: str, *, max_files: int, now: datetime) -> str:
        directory, _, log = path.rpartition("/")
        names = [each.rpartition("/")[2] for each in self._sink.paths() if each.startswith(f"{path}.")]
        plan = plan_rotation(log, names, max_files=max_files, now=now)
        for name in plan.remove:
            self._sink.remove(f"{directory}/{name}")
        for name in plan.compress:
            self._sink.rename(f"{directory}/{name}", f"{directory}/{name}{COMPRESSED}")
        return plan.rotated

    async def rename(self, path: str, name: str) -> None:
        self._sink.rename(path, f"{path.rpartition('/')[0]}/{name}")

    async def restore(self, path: str, name: str) -> bool:
        if path in self._sink.paths():
            return False
        self._sink.rename(f"{path.rpartition('/')[0]}/{name}", path)
        return True

    async def directories(self) -> tuple[LogDirectory, ...]:
        logs = [path.removeprefix(_PREFIX) for path in self._sink.paths() if path.startswith(_PREFIX)]
        names = dict.fromkeys(log.partition("/")[0] for log in logs)
        return tuple(LogDirectory(PodUID(name.rpartition("_")[2]), name) for name in names)

    async def remove_directory(self, directory: LogDirectory) -> None:
        await self.remove_log(f"{LOGS}/{directory.name}/")

    async def dangling_links(self) -> tuple[str, ...]:
        paths = self._sink.paths()
        return tuple(name for name, log in self.links.items() if log not in paths)


class MemoryOomCounts:
    """How many processes were killed in each container."""

    def __init__(self) -> None:
        self.kills: dict[str, int] = {}
        self.reads = 0

    async def read(self, containers: Collection[str]) -> Mapping[str, int]:
        self.reads += 1
        return {container: self.kills.get(container, 0) for container in containers}


class MemoryTerminationFiles:
    """What simulated containers wrote before they ended."""

    def __init__(self, *, sink: MemorySink) -> None:
        self._sink = sink

    async def read_tail(self, path: str, *, limit: int) -> bytes | None:
        content = self._sink.read(path)
        return None if content is None else content[-limit:]

    async def read_log_tail(self, path: str, *, lines: int, limit: int) -> bytes:
        parsed = [parse_cri_line(line) for line in (self._sink.read(path) or b"").splitlines()[-lines:]]
        return b"".join(line.content for line in parsed if line is not None)[-limit:]


class MemoryCgroups:
    """Pod cgroups by name."""

    def __init__(self) -> None:
        self.driver = ""
        """The cgroup driver that the agent was told."""
        self.pods: set[PodUID] = set()
        self.made: list[PodUID] = []
        """Every pod that was given a cgroup, in order."""
        self.given: dict[PodUID, PodAllocation] = {}
        """What the newest cgroup of each was made from."""
        self.unlimited: set[PodUID] = set()
        """Those whose CPU limit is not enforced."""
        self.reduced: set[PodUID] = set()
        self.refuses = ""
        """Why no cgroup can be made at the moment."""

    async def prepare(self, driver: str) -> None:
        self.driver = driver

    def parent_of(self, pod: Pod) -> str:
        return f"/kubepods/pod{pod.metadata.uid}"

    def exists(self, pod: Pod) -> bool:
        return uid_of(pod) in self.pods

    async def ensure(self, pod: Pod, allocation: PodAllocation, *, lifts_quota: bool = False) -> bool:
        if self.refuses:
            raise CgroupError(self.refuses)
        if self.exists(pod):
            return False
        self.pods.add(uid_of(pod))
        self.made.append(uid_of(pod))
        self.given[uid_of(pod)] = allocation
        if lifts_quota:
            self.unlimited.add(uid_of(pod))
        return True

    async def write(self, pod: Pod, allocation: PodAllocation) -> None:
        if self.refuses:
            raise CgroupError(self.refuses)
        self.given[uid_of(pod)] = allocation

    async def destroy(self, pod: Pod) -> None:
        self.pods.discard(uid_of(pod))

    async def destroy_uid(self, uid: PodUID) -> None:
        self.pods.discard(uid)

    async def reduce_cpu(self, uid: PodUID) -> None:
        self.reduced.add(uid)

    async def orphans(self, known: frozenset[PodUID]) -> tuple[PodUID, ...]:
        return tuple(sorted(self.pods - known))


class MemoryQos:
    """The pods among which the node was last shared out."""

    def __init__(self) -> None:
        self.pods: frozenset[PodUID] = frozenset()
        self.refuses = ""

    async def update(self, pods: Iterable[tuple[Pod, PodAllocation]]) -> None:
        if self.refuses:
            raise CgroupError(self.refuses)
        self.pods = frozenset(uid_of(pod) for pod, _ in pods)

    async def repair(self) -> tuple[RepairedCgroup, ...]:
        """Find nothing that somebody else has changed."""
        return ()


class MemoryCheckpoint:
    """What an agent left to the next one; a loss of power takes what was not synced."""

    def __init__(self) -> None:
        self.left = SavedState()
        self.saves = 0
        self._synced = SavedState()

    async def save(self, value: SavedState, *, sync: bool = True) -> None:
        self.left = value
        self.saves += 1
        if sync:
            self._synced = value

    async def sync_to_disk(self) -> None:
        self._synced = self.left

    def lose_power(self) -> None:
        self.left = self._synced


class MemoryBoot:
    """The newest boot that an agent saved."""

    def __init__(self) -> None:
        self.left: BootRecord | None = None

    async def save(self, value: BootRecord) -> None:
        self.left = value


class MemoryVolumes:
    """Volumes and their parts that exist by name, and files in them that do not."""

    def __init__(self) -> None:
        self.mounts: set[tuple[PodUID, str, int]] = set()
        """The parts that are mounted: by pod, container and number."""
        self.volumes: set[tuple[PodUID, str]] = set()

    def owners(self) -> frozenset[PodUID]:
        """Return the pods that have something mounted."""
        return frozenset({mount[0] for mount in self.mounts} | {volume[0] for volume in self.volumes})

    async def make(self, uid: PodUID, name: str) -> None:
        self.volumes.add((uid, name))

    async def take_away(self, uid: PodUID, name: str) -> None:
        self.volumes.discard((uid, name))

    async def pods(self) -> list[PodUID]:
        return sorted(self.owners())

    async def find(self, uid: PodUID) -> list[FoundVolume]:
        names = sorted(name for owner, name in self.volumes if owner == uid)
        return [FoundVolume(MemoryPlugin.name, name, volume_path(uid, name)) for name in names]

    async def has_mounts(self, uid: PodUID) -> bool:
        return any(owner == uid for owner, _ in self.volumes)

    async def remove(self, uid: PodUID) -> None:
        """Do nothing: the directories themselves are among the pods' files."""

    async def prepare(
        self,
        uid: PodUID,
        container: str,
        index: int,
        *,
        volume: str,
        root: str,  # noqa: ARG002 - the port's signature
        path: str,  # noqa: ARG002 - the port's signature
    ) -> str:
        self.mounts.add((uid, container, index))
        return f"/pods/{uid}/volume-subpaths/{volume}/{container}/{index}"

    async def clean(self, uid: PodUID) -> None:
        self.mounts = {mount for mount in self.mounts if mount[0] != uid}

    async def read(self, root: str, path: str, names: frozenset[str]) -> EnvFile:  # noqa: ARG002 - the port's signature
        raise HostError(f"cannot read {root}/{path}: No such file or directory")


class MemoryPlugin(VolumePlugin):
    """Every kind of volume, by name only."""

    name = "kubernetes.io/empty-dir"

    def __init__(self, *, volumes: MemoryVolumes) -> None:
        self._volumes = volumes

    def supports(self, spec: VolumeSpec) -> bool:  # noqa: ARG002 - every kind
        return True

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:  # noqa: ARG002 - the same for all of them
        return VolumeAttributes()

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(volume_path(uid, spec.name))

    async def set_up(self, request: MountRequest) -> None:
        await self._volumes.make(request.uid, request.spec.name)

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._volumes.take_away(uid, name)


def volume_path(uid: PodUID, name: str) -> Path:
    return Path(f"/pods/{uid}/volumes/{name}")


DISK = FilesystemUsage(
    device=1, capacity=100 << 30, available=60 << 30, used=40 << 30, inodes=1_000_000, inodes_free=900_000
)


class MemoryMachine:
    """A machine of two CPUs with one address; a test can boot it again, or change what it has."""

    def __init__(self) -> None:
        self.cpus = 2
        self.memory = 4 << 30
        """In bytes."""
        self.boot_id = "boot-1"
        self.booted_at: datetime | None = None
        self.addresses: tuple[IPAddress, ...] = (ADDRESS,)
        self.has_app_armor = False
        self.size = 100 << 30
        """Of the filesystem with the root directory, in bytes."""

    def info(self) -> MachineInfo:
        return MachineInfo(
            cpus=self.cpus,
            memory=self.memory,
            machine_id="m",
            system_uuid="u",
            boot_id=self.boot_id,
            booted_at=self.booted_at,
            has_app_armor=self.has_app_armor,
        )

    def boot_again(self, *, now: datetime) -> None:
        """Be another boot of the same machine from now on."""
        self.boot_id = f"boot-{int(self.boot_id.rpartition('-')[2]) + 1}"
        self.booted_at = now

    def versions(self) -> SystemVersions:
        return SystemVersions("6.1.0", "Debian")

    async def read(self, *, name: str, prefer: int, lookup: bool) -> AddressFacts:  # noqa: ARG002 - the port's signature
        """Return the addresses."""
        return AddressFacts(local=frozenset(self.addresses), default=self.addresses[0])

    async def storage(self) -> int:
        return self.size


class MemoryDisk:
    """Disks whose directories take what a test says; everything else is empty."""

    def __init__(self) -> None:
        self.trees: dict[str, DiskUsage] = {}
        self.measured: list[DiskTarget] = []
        self.find_filesystem: Callable[[], FilesystemUsage] = lambda: DISK

    async def measure(
        self, targets: Iterable[DiskTarget], *, most: int | None = None
    ) -> Mapping[DiskTarget, DiskReading]:
        found: dict[DiskTarget, DiskReading] = {}
        for target in targets:
            self.measured.append(target)
            usage = self.trees.get(target.path, DiskUsage(used=0, inodes=1, filesystem=DISK))
            is_large = most is not None and usage.entries > most
            found[target] = NotMeasured(reason="too many entries", is_large=True) if is_large else usage
        return found

    async def filesystem(self, path: Path) -> FilesystemUsage:  # noqa: ARG002 - one for all
        return self.find_filesystem()


class MemoryDns:
    """One name server for every pod."""

    async def config_for(self, pod: Pod) -> DnsConfig:  # noqa: ARG002 - the port's signature
        return DnsConfig(servers=("10.0.0.10",))


@lru_cache(maxsize=4096)
def _owner(path: str) -> PodUID:
    """Return the pod of `/var/log/pods/<namespace>_<name>_<uid>/<container>/<n>.log` or `/pods/<uid>/…`."""
    if path.startswith("/pods/"):
        return PodUID(path.split("/")[2])
    return PodUID(path.removeprefix(_PREFIX).partition("/")[0].rpartition("_")[2])
