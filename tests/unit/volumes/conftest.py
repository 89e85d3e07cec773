"""A machine whose mounts are only noted, and an API server in a dictionary."""

from datetime import timedelta

import pytest

from klet.api.codec import convert
from klet.api.config import ConfigMap, Secret
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.certs.pod_certificates.board import NoPodCertificates
from klet.host.project_files import ProjectFilePaths
from klet.host.project_quotas import HostProjectQuotas
from klet.model.objects import IssuedToken, ObjectMissing
from klet.objectcache.errors import TokenFailed
from klet.objectcache.trust_bundles import NoTrustBundles
from klet.testing.clock import START, SteppingClock
from klet.testing.devices import MemoryDevices
from klet.testing.mounts import NotedMounts
from klet.testing.no_storage import no_storage
from klet.testing.project_quotas import FakeProjectKernel
from klet.volumes.build import VolumePorts, build_plugins


class InlineThreads:
    """Runs on the spot what would run on a thread."""

    async def run(self, function, *args, **kwargs):
        return function(*args, **kwargs)


class Objects:
    """Config maps and secrets by name."""

    def __init__(self):
        self.config_maps = {}
        self.secrets = {}
        self.error = None

    async def config_map(self, namespace, name):
        return self._found(self.config_maps, "configmap", namespace, name)

    async def secret(self, namespace, name):
        return self._found(self.secrets, "secret", namespace, name)

    def _found(self, objects, kind, namespace, name):
        assert namespace == "ns"
        if self.error is not None:
            raise self.error
        if name not in objects:
            raise ObjectMissing(f'{kind} "{name}" not found')
        return objects[name]


class Tokens:
    """Makes numbered tokens."""

    def __init__(self):
        self.asked = []
        self.forgotten = []
        self.error = ""

    async def get(self, namespace, account, request):
        self.asked.append((namespace, account, request))
        if self.error:
            raise TokenFailed(self.error)
        return IssuedToken(f"token-{len(self.asked)}", START + timedelta(minutes=48))

    def forget_pod(self, uid):
        self.forgotten.append(uid)


class Notes:
    """A journal that is only a list."""

    def __init__(self):
        self.findings = []

    def record(self, finding, *, parent=None):
        assert parent is None
        self.findings.append(finding)
        return f"cause-{len(self.findings)}"


class Node:
    """What the node has for pods."""

    def allocatable(self):
        return {"cpu": Quantity.parse("3920m"), "memory": Quantity.parse("16Gi")}


class Machine:
    """Everything that volumes are made of."""

    def __init__(self, root):
        self.root = root
        self.mounter = NotedMounts()
        self.notes = Notes()
        self.objects = Objects()
        self.tokens = Tokens()
        self.trust = NoTrustBundles()
        self.clock = SteppingClock()
        self.threads = InlineThreads()
        self.project_files = ProjectFilePaths(root / "etc" / "projects", root / "etc" / "projid")
        self.kernel = FakeProjectKernel()
        self.quotas = HostProjectQuotas(
            files=self.project_files, kernel=self.kernel, threads=self.threads, clock=self.clock
        )
        self.plugins = self.build(has_api=True)

    def build(self, *, has_api, noswap=False):
        ports = VolumePorts(
            root=self.root,
            objects=self.objects,
            tokens=self.tokens,
            trust=self.trust,
            certificates=NoPodCertificates(),
            node=Node(),
            mounter=self.mounter,
            storage=no_storage(self.root),
            devices=MemoryDevices(),
            quotas=self.quotas,
            recorder=self.notes,
            threads=self.threads,
            clock=self.clock,
            has_api=has_api,
            noswap=noswap,
        )
        return {plugin.name: plugin for plugin in build_plugins(ports)}

    def path(self, plugin, name="v"):
        return self.root / "pods" / "u" / "volumes" / plugin.replace("/", "~") / name

    def marker(self, name):
        return self.root / "pods" / "u" / "plugins" / "kubernetes.io~empty-dir" / name / "ready"


def make_pod(*volumes, uid="u", mounts=None, labels=None, **spec):
    """A pod whose container mounts every volume, unless it is said otherwise."""
    named = [{"name": "v", **volume} if "name" not in volume else volume for volume in volumes]
    wanted = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in named]
    containers = [{"name": "c", "image": "i", "volumeMounts": wanted if mounts is None else mounts}]
    meta = {"name": "p", "namespace": "ns", "uid": uid, "labels": labels or {"app": "x"}}
    return convert(Pod, {"metadata": meta, "spec": {"containers": containers, "volumes": named, **spec}})


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "etc").mkdir()
    return Machine(tmp_path)


@pytest.fixture
def pod_with():
    return make_pod


@pytest.fixture
def config_map():
    def make(**data):
        return ConfigMap(data=data)

    return make


@pytest.fixture
def secret():
    return lambda **data: Secret(data={key: value.encode() for key, value in data.items()})
