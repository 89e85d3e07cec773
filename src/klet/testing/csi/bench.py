"""The CSI plugin on a root of its own, with the test driver on a real socket and an API server in dictionaries."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.authentication import TokenRequest
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.storage import CSIDriver, CSIDriverSpec, PersistentVolume, VolumeAttachment, VolumeAttachmentStatus
from klet.api.volume import Volume
from klet.csi.client import CsiConnector, NodeCapability
from klet.csi.metrics import register_csi_calls
from klet.errors import KletError
from klet.metrics import MetricRegistry
from klet.model.allocation import PodAllocation
from klet.model.causes import CauseId, Finding
from klet.model.csi import CsiVersion, RegisteredDriver
from klet.model.objects import IssuedToken, ObjectMissing
from klet.model.pods import PodUID
from klet.testing.clock import START
from klet.testing.csi.backing import VolumeBacking
from klet.testing.csi.driver import NAME
from klet.testing.csi.serving import DriverServer, serve_driver
from klet.volumes.csi.access import CsiAccess
from klet.volumes.csi.build import CsiSettings, build_csi
from klet.volumes.csi.places import CsiLayout, attachment_name
from klet.volumes.owner_change import OwnerChanger
from klet.volumes.plugins.base import MountRequest, StageRequest
from klet.volumes.spec import VolumeSpec

NODE: Final = "node-1"
UID: Final = PodUID("11111111-2222-3333-4444-555555555555")
PV: Final = "pvc-7f3a"
HANDLE: Final = "vol-0a1b"
_USUAL: Final[Mapping[str, Any]] = {"attach_required": False, "fs_group_policy": "ReadWriteOnceWithFSType"}
_SHARED: Final = ("plugins", "kubernetes.io", "csi")
_BLOCKS: Final = ("volumeDevices", "volumeDevices/staging", "volumeDevices/publish")


class ListedDrivers:
    """The drivers that are registered, and their CSIDriver objects."""

    def __init__(self) -> None:
        self.endpoints: dict[str, str] = {}
        self.objects: dict[str, CSIDriver] = {}
        self.is_synced = True

    def find(self, name: str) -> RegisteredDriver | None:
        if name not in self.endpoints:
            return None
        return RegisteredDriver(name=name, endpoint=self.endpoints[name], version=CsiVersion((1, 0)))

    def get(self, name: str) -> CSIDriver | None:
        return self.objects.get(name)


class ListedObjects:
    """Attachments, secrets and tokens of an API server, and what has been asked for."""

    def __init__(self) -> None:
        self.attachments: dict[str, VolumeAttachment] = {}
        self.secrets: dict[tuple[str, str], Mapping[str, str]] = {}
        self.tokens: list[tuple[str, str, TokenRequest]] = []
        self.token_error: KletError | None = None
        self.refreshed: list[str] = []
        self.refresh_error: KletError | None = None

    async def attachment(self, name: str) -> VolumeAttachment:
        if name not in self.attachments:
            raise ObjectMissing(f'volumeattachments.storage.k8s.io "{name}" not found')
        return self.attachments[name]

    async def secret_data(self, namespace: str, name: str) -> Mapping[str, str]:
        if (namespace, name) not in self.secrets:
            raise ObjectMissing(f'secrets "{name}" not found')
        return self.secrets[namespace, name]

    async def get(self, namespace: str, account: str, request: TokenRequest) -> IssuedToken:
        if self.token_error is not None:
            raise self.token_error
        self.tokens.append((namespace, account, request))
        return IssuedToken(f"token-{len(self.tokens)}", None, START)

    async def refresh(self, name: str) -> None:
        self.refreshed.append(name)
        if self.refresh_error is not None:
            raise self.refresh_error


class FindingList:
    """A journal that is only a list."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def record(self, finding: Finding, *, parent: CauseId | None = None) -> CauseId:
        assert parent is None
        self.findings.append(finding)
        return CauseId(f"cause-{len(self.findings)}")


class CsiBench:
    """One plugin and one driver."""

    def __init__(self, *, root: Path, server: DriverServer, threads: Threads) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.server = server
        self.driver = server.driver
        self.drivers = ListedDrivers()
        self.drivers.endpoints[NAME] = str(server.socket)
        self.api = ListedObjects()
        self.layout = CsiLayout(root)
        connector = CsiConnector(durations=register_csi_calls(MetricRegistry()), clock=SystemClock())
        self.access = CsiAccess(
            registered=self.drivers, known=self.drivers, objects=self.api, connector=connector, node=NODE
        )
        self.findings = FindingList()
        owners = OwnerChanger(recorder=self.findings, threads=threads, clock=SystemClock())
        self.plugin = build_csi(
            access=self.access,
            tokens=self.api,
            limits=self.api,
            owners=owners,
            threads=threads,
            settings=CsiSettings(root=root),
        )
        self.staging = self.layout.staging(NAME, HANDLE).path
        self.describe()

    def allow(self, *capabilities: NodeCapability) -> None:
        self.driver.capabilities = frozenset(capabilities)

    def describe(self, **spec: Any) -> None:
        """Change the CSIDriver object."""
        self.drivers.objects[NAME] = CSIDriver(spec=CSIDriverSpec(**{**_USUAL, **spec}))

    def attach(self, **status: Any) -> None:
        name = attachment_name(HANDLE, NAME, NODE)
        self.api.attachments[name] = VolumeAttachment(status=VolumeAttachmentStatus(**{"attached": True, **status}))

    def target(self, name: str = PV) -> Path:
        return self.layout.target(UID, name).path

    def pod(self, **spec: Any) -> Pod:
        meta = {"name": "web-0", "namespace": "default", "uid": UID}
        containers = [{"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]
        return convert(Pod, {"metadata": meta, "spec": {"serviceAccountName": "web", "containers": containers, **spec}})

    def persistent(
        self,
        *,
        read_only: bool = False,
        mode: str = "Filesystem",
        options: tuple[str, ...] = (),
        modes: tuple[str, ...] = ("ReadWriteOnce",),
        **source: Any,
    ) -> VolumeSpec:
        csi = {"driver": NAME, "volumeHandle": HANDLE, "fsType": "ext4", **source}
        spec = {"csi": csi, "accessModes": list(modes), "mountOptions": list(options), "volumeMode": mode}
        found = convert(PersistentVolume, {"metadata": {"name": PV}, "spec": spec})
        return VolumeSpec(Volume(name="data"), found, read_only=read_only)

    def inline(self, **source: Any) -> VolumeSpec:
        return VolumeSpec(convert(Volume, {"name": "scratch", "csi": {"driver": NAME, **source}}))

    async def stage(self, spec: VolumeSpec | None = None, pod: Pod | None = None, *, label: str = "") -> None:
        spec = spec or self.persistent()
        path = self.plugin.device_mount_path(spec)
        await self.plugin.mount_device(StageRequest(pod=pod or self.pod(), spec=spec, mount_path=path, label=label))

    async def unstage(self) -> None:
        await self.plugin.unmount_device(str(self.staging), device_path="")

    async def publish(
        self, spec: VolumeSpec | None = None, pod: Pod | None = None, *, is_remount: bool = False, label: str = ""
    ) -> None:
        request = MountRequest(
            pod=pod or self.pod(),
            allocation=PodAllocation(),
            spec=spec or self.persistent(),
            is_remount=is_remount,
            label=label,
        )
        await self.plugin.set_up(request)

    async def unpublish(self, name: str = PV) -> None:
        await self.plugin.tear_down(UID, name)

    def block(self, spec: VolumeSpec | None = None) -> StageRequest:
        spec = spec or self.persistent(mode="Block", fsType="")
        return StageRequest(pod=self.pod(), spec=spec, mount_path=self.plugin.global_map_path(spec))

    async def map_device(self, spec: VolumeSpec | None = None) -> tuple[str, str]:
        """Return where it is staged, and the pod's device."""
        request = self.block(spec)
        staging = await self.plugin.set_up_device(request)
        return staging, await self.plugin.map_pod_device(request)

    async def unmap_device(self) -> None:
        await self.plugin.unmap_pod_device(UID, PV)
        await self.plugin.tear_down_device(PV, map_path="", device_path="")

    def data_files(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("vol_data.json*"))

    def leftovers(self) -> list[str]:
        """Return what is left of volumes: everything below the root but the directories for all of them."""
        drivers = "/".join(_SHARED)
        kept = {"pods", *("/".join(_SHARED[:count]) for count in range(1, len(_SHARED) + 1))}
        kept |= {f"{drivers}/{name}" for name in (NAME, *_BLOCKS)}
        kept |= {f"pods/{UID}{below}" for below in ("", "/volumes", "/volumes/kubernetes.io~csi")}
        return sorted({str(path.relative_to(self.root)) for path in self.root.rglob("*")} - kept)


@asynccontextmanager
async def open_bench(root: Path, socket: Path, backing: VolumeBacking) -> AsyncIterator[CsiBench]:
    """Yield a bench as long as the driver serves."""
    threads = Threads(limit=2)
    try:
        async with serve_driver(backing=backing, socket=socket) as server:
            yield CsiBench(root=root, server=server, threads=threads)
    finally:
        threads.close()
