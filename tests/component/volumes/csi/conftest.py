"""The CSI plugin on a temporary root, with the test driver on a real socket and an API server in dictionaries."""

import contextlib
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.storage import CSIDriver, CSIDriverSpec, PersistentVolume, VolumeAttachment, VolumeAttachmentStatus
from klet.api.volume import Volume
from klet.csi.client import CsiConnector, NodeCapability
from klet.csi.metrics import register_csi_calls
from klet.errors import KletError
from klet.metrics import MetricRegistry
from klet.model.allocation import PodAllocation
from klet.model.csi import CsiVersion, RegisteredDriver
from klet.model.objects import IssuedToken, ObjectMissing
from klet.testing.clock import START
from klet.testing.csi.backing import PlainBacking
from klet.testing.csi.driver import NAME
from klet.testing.csi.serving import serve_driver
from klet.volumes.csi.access import CsiAccess
from klet.volumes.csi.build import CsiSettings, build_csi
from klet.volumes.csi.places import CsiLayout, attachment_name
from klet.volumes.plugins.base import MountRequest, StageRequest
from klet.volumes.spec import VolumeSpec

NODE = "node-1"
UID = "11111111-2222-3333-4444-555555555555"
PV = "pvc-7f3a"
HANDLE = "vol-0a1b"
USUAL = CSIDriver(spec=CSIDriverSpec(attach_required=False, fs_group_policy="ReadWriteOnceWithFSType"))


class Registered:
    """Drivers that are registered."""

    def __init__(self):
        self.endpoints = {}

    def find(self, name):
        if name not in self.endpoints:
            return None
        return RegisteredDriver(name=name, endpoint=self.endpoints[name], version=CsiVersion((1, 0)))


class Known:
    """CSIDriver objects."""

    def __init__(self):
        self.is_synced = True
        self.objects = {NAME: USUAL}

    def get(self, name):
        return self.objects.get(name)


class ApiObjects:
    """Attachments and secrets."""

    def __init__(self):
        self.attachments = {}
        self.secrets = {}
        self.tokens = []
        self.token_error = None

    async def attachment(self, name):
        if name not in self.attachments:
            raise ObjectMissing(f'volumeattachments.storage.k8s.io "{name}" not found')
        return self.attachments[name]

    async def secret_data(self, namespace, name):
        if (namespace, name) not in self.secrets:
            raise ObjectMissing(f'secrets "{name}" not found')
        return self.secrets[namespace, name]

    async def get(self, namespace, account, request):
        if self.token_error is not None:
            raise self.token_error
        self.tokens.append((namespace, account, request))
        return IssuedToken(f"token-{len(self.tokens)}", None, START)


class Limits:
    """What has been asked for again."""

    def __init__(self):
        self.refreshed = []
        self.error = None

    async def refresh(self, name):
        self.refreshed.append(name)
        if self.error is not None:
            raise self.error


class CsiBench:
    """One plugin and one driver."""

    def __init__(self, root: Path, server, threads):
        self.root = root
        self.server = server
        self.driver = server.driver
        self.registered = Registered()
        self.registered.endpoints[NAME] = str(server.socket)
        self.known = Known()
        self.api = ApiObjects()
        self.limits = Limits()
        self.layout = CsiLayout(root)
        connector = CsiConnector(durations=register_csi_calls(MetricRegistry()), clock=SystemClock())
        self.access = CsiAccess(
            registered=self.registered, known=self.known, objects=self.api, connector=connector, node=NODE
        )
        self.plugin = build_csi(
            access=self.access, tokens=self.api, limits=self.limits, threads=threads, settings=CsiSettings(root=root)
        )
        self.staging = self.layout.staging(NAME, HANDLE).path

    def allow(self, *capabilities: NodeCapability):
        self.driver.capabilities = frozenset(capabilities)

    def describe(self, **spec):
        """Change the CSIDriver object."""
        given = {"attach_required": False, "fs_group_policy": "ReadWriteOnceWithFSType", **spec}
        self.known.objects[NAME] = CSIDriver(spec=CSIDriverSpec(**given))

    def attach(self, **status):
        name = attachment_name(HANDLE, NAME, NODE)
        self.api.attachments[name] = VolumeAttachment(status=VolumeAttachmentStatus(**{"attached": True, **status}))

    def target(self, name=PV, uid=UID) -> Path:
        return self.layout.target(uid, name).path

    def data_files(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("vol_data.json*"))

    def leftovers(self) -> list[str]:
        """Return what is left of volumes: everything below the root but the directories for all of them."""
        kept = {"pods", "plugins", "plugins/kubernetes.io", "plugins/kubernetes.io/csi"}
        drivers = "plugins/kubernetes.io/csi"
        shared = {
            f"{drivers}/{name}" for name in (NAME, "volumeDevices", "volumeDevices/staging", "volumeDevices/publish")
        }
        pods = {f"pods/{UID}", f"pods/{UID}/volumes", f"pods/{UID}/volumes/kubernetes.io~csi"}
        found = {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
        return sorted(found - kept - shared - pods)

    def pod(self, **spec) -> Pod:
        return make_pod(**spec)

    def persistent(self, **given) -> VolumeSpec:
        return persistent(**given)

    def inline(self, **source) -> VolumeSpec:
        return VolumeSpec(convert(Volume, {"name": "scratch", "csi": {"driver": NAME, **source}}))

    async def stage(self, spec=None, pod=None, **more) -> None:
        spec = spec or persistent()
        path = self.plugin.device_mount_path(spec)
        await self.plugin.mount_device(StageRequest(pod=pod or make_pod(), spec=spec, mount_path=path, **more))

    async def unstage(self) -> None:
        await self.plugin.unmount_device(str(self.staging), device_path="")

    async def publish(self, spec=None, pod=None, **more) -> None:
        pod = pod or make_pod()
        request = MountRequest(pod=pod, allocation=PodAllocation(), spec=spec or persistent(), **more)
        await self.plugin.set_up(request)

    async def unpublish(self, name=PV) -> None:
        await self.plugin.tear_down(UID, name)

    def block(self, spec=None) -> StageRequest:
        spec = spec or persistent(mode="Block", fsType="")
        return StageRequest(pod=make_pod(), spec=spec, mount_path=self.plugin.global_map_path(spec))

    @contextlib.contextmanager
    def fails(self, kind: type[KletError], message: str):
        """Expect an error of exactly this class and with this text."""
        with pytest.raises(KletError) as caught:
            yield
        assert (type(caught.value), str(caught.value)) == (kind, message)


@pytest.fixture
async def bench(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    threads = Threads(limit=2)
    backing = PlainBacking(root=tmp_path / "backing")
    async with serve_driver(backing=backing, socket=tmp_path / "d.sock") as server:
        yield CsiBench(root, server, threads)
    threads.close()


def make_pod(**spec) -> Pod:
    meta = {"name": "web-0", "namespace": "default", "uid": UID}
    containers = [{"name": "c", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]
    return convert(Pod, {"metadata": meta, "spec": {"serviceAccountName": "web", "containers": containers, **spec}})


def persistent(*, read_only=False, mode="Filesystem", options=(), modes=("ReadWriteOnce",), **source) -> VolumeSpec:
    csi = {"driver": NAME, "volumeHandle": HANDLE, "fsType": "ext4", **source}
    spec = {"csi": csi, "accessModes": list(modes), "mountOptions": list(options), "volumeMode": mode}
    found = convert(PersistentVolume, {"metadata": {"name": PV}, "spec": spec})
    return VolumeSpec(Volume(name="data"), found, read_only=read_only)
