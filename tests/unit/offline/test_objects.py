import asyncio

import pytest

from klet.aio.broadcast import Broadcast
from klet.api.codec import convert
from klet.api.config import ConfigMap, Secret
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.objects import ObjectKind, ObjectMissing, ObjectRef
from klet.offline.object_files import ObjectFiles
from klet.offline.object_formats import PlainFormat, SealedFormat
from klet.offline.objects import KeptObjects, forget_unused
from klet.offline.sealing import load_sealer
from klet.offline.store import KEY_SIZE
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

CONFIG = ConfigMap(metadata=ObjectMeta(namespace="ns", name="cfg", resource_version="1"), data={"a": "1"})
SECRET = Secret(metadata=ObjectMeta(namespace="ns", name="key", resource_version="1"), data={"a": b"1"})
REF = ObjectRef(ObjectKind.CONFIG_MAP, "ns", "cfg")


class Silent(KletError):
    """The API server did not say."""


class ServerObjects:
    """What an API server has, as long as it is there."""

    def __init__(self):
        self.objects = {"cfg": CONFIG, "key": SECRET}
        self.is_silent = False
        self.asked = 0
        self.news = Broadcast()
        self.registered = []

    def register(self, pod):
        self.registered.append(pod.metadata.uid)

    def unregister(self, uid):
        self.registered.remove(uid)

    async def config_map(self, _namespace, name):
        return self._read(name)

    async def secret(self, _namespace, name):
        return self._read(name)

    def changes(self):
        return self.news.subscribe()

    def _read(self, name):
        self.asked += 1
        if self.is_silent:
            raise Silent("timed out")
        if name not in self.objects:
            raise ObjectMissing(f'"{name}" not found')
        return self.objects[name]


class Node:
    """One directory, one server, and readers that come one after the other."""

    def __init__(self, directory, threads):
        sealer, clock = load_sealer(bytes(KEY_SIZE)), ManualClock()

        def plain(owner):
            return PlainFormat(kind="KeptConfigMap", owner=owner, struct=ConfigMap)

        def sealed(owner):
            return SealedFormat(kind="KeptSecret", owner=owner, struct=Secret, sealer=sealer)

        self.server = ServerObjects()
        self.is_away = False
        self.config_maps = ObjectFiles(directory=directory / "c", form=plain, threads=threads, clock=clock)
        self.secrets = ObjectFiles(directory=directory / "s", form=sealed, threads=threads, clock=clock)

    def reader(self):
        return KeptObjects(
            inner=self.server, config_maps=self.config_maps, secrets=self.secrets, is_away=lambda: self.is_away
        )

    def lose_server(self):
        self.server.is_silent = self.is_away = True


@pytest.fixture
def node(tmp_path, threads):
    return Node(tmp_path, threads)


async def test_what_was_read_is_there_for_a_later_life_without_a_server(node):
    first = node.reader()
    assert await first.config_map("ns", "cfg") == CONFIG
    assert await first.secret("ns", "key") == SECRET
    node.lose_server()
    later = node.reader()
    assert await later.config_map("ns", "cfg") == CONFIG
    assert await later.secret("ns", "key") == SECRET


async def test_what_did_not_exist_still_does_not(node):
    with pytest.raises(ObjectMissing):
        await node.reader().config_map("ns", "optional")
    node.lose_server()
    reader = node.reader()
    with pytest.raises(ObjectMissing, match='configmap "optional" not found'):
        await reader.config_map("ns", "optional")
    node.is_away = False
    with pytest.raises(ObjectMissing):
        await reader.config_map("ns", "optional")


async def test_what_was_never_read_is_not_known(node):
    node.lose_server()
    with pytest.raises(Silent):
        await node.reader().secret("ns", "key")


async def test_a_server_that_is_not_known_to_be_away_is_believed(node):
    reader = node.reader()
    await reader.config_map("ns", "cfg")
    node.server.is_silent = True
    with pytest.raises(Silent):
        await reader.config_map("ns", "cfg")


async def test_a_server_that_is_away_is_asked_once(node):
    reader = node.reader()
    await reader.config_map("ns", "cfg")
    node.lose_server()
    node.server.asked = 0
    for _ in range(3):
        assert await reader.config_map("ns", "cfg") == CONFIG
    assert node.server.asked == 1


async def test_a_server_that_is_back_is_asked_again(node):
    reader = node.reader()
    await reader.config_map("ns", "cfg")
    node.lose_server()
    await reader.config_map("ns", "cfg")
    node.server.is_silent = node.is_away = False
    changed = ConfigMap(metadata=ObjectMeta(namespace="ns", name="cfg", resource_version="2"), data={"a": "2"})
    node.server.objects["cfg"] = changed
    assert await reader.config_map("ns", "cfg") == changed
    node.lose_server()
    assert await node.reader().config_map("ns", "cfg") == changed


async def test_what_was_remembered_is_good_until_the_server_shows_it(node):
    await node.reader().config_map("ns", "cfg")
    node.lose_server()
    reader = node.reader()
    await reader.config_map("ns", "cfg")
    node.is_away = False  # it answers somebody, and has not shown this object yet
    assert await reader.config_map("ns", "cfg") == CONFIG
    with pytest.raises(Silent):
        await node.reader().config_map("ns", "cfg")
    node.server.is_silent = False
    assert await reader.config_map("ns", "cfg") == CONFIG
    node.server.is_silent = True
    with pytest.raises(Silent):
        await reader.config_map("ns", "cfg")


async def test_what_was_remembered_and_is_gone_is_gone(node):
    await node.reader().config_map("ns", "cfg")
    node.lose_server()
    reader = node.reader()
    await reader.config_map("ns", "cfg")
    node.server.is_silent = node.is_away = False
    del node.server.objects["cfg"]
    for _ in range(2):
        with pytest.raises(ObjectMissing):
            await reader.config_map("ns", "cfg")


async def test_a_copy_in_memory_goes_before_the_one_on_disk(node):
    reader = node.reader()
    await reader.config_map("ns", "cfg")
    node.is_away = True
    newer = ConfigMap(metadata=ObjectMeta(namespace="ns", name="cfg", resource_version="2"), data={"a": "2"})
    node.server.objects["cfg"] = newer
    assert await reader.config_map("ns", "cfg") == newer


class NotedFiles:
    """Tells when something is kept."""

    def __init__(self):
        self.kept = asyncio.Queue()

    async def keep(self, owner, value, *, version):
        self.kept.put_nowait((owner, value, version))

    async def find(self, _owner):
        return None


async def test_a_change_that_nobody_reads_is_kept(node):
    config_maps, secrets = NotedFiles(), NotedFiles()
    reader = KeptObjects(inner=node.server, config_maps=config_maps, secrets=secrets, is_away=lambda: False)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run())
        await asyncio.sleep(0)
        node.server.news.send(ObjectRef(ObjectKind.CONFIG_MAP, "ns", "gone"))
        node.server.news.send(REF)
        node.server.news.send(ObjectRef(ObjectKind.SECRET, "ns", "key"))
        assert await config_maps.kept.get() == ("ns/gone", None, "-")
        assert await config_maps.kept.get() == ("ns/cfg", CONFIG, "/1")
        assert await secrets.kept.get() == ("ns/key", SECRET, "/1")
        task.cancel()


async def test_objects_of_pods_that_are_gone_are_removed(node):
    reader = node.reader()
    await reader.config_map("ns", "cfg")
    await reader.secret("ns", "key")
    spec = {"containers": [{"name": "c"}], "volumes": [{"name": "v", "configMap": {"name": "cfg"}}]}
    pod = convert(Pod, {"metadata": {"namespace": "ns", "uid": "u"}, "spec": spec})
    await forget_unused([pod], node.config_maps, node.secrets)
    assert await node.config_maps.find("ns/cfg") is not None
    assert await node.secrets.find("ns/key") is None


def test_who_uses_what_is_passed_on(node):
    reader = node.reader()
    reader.register(make_pod(uid="u"))
    assert node.server.registered == ["u"]
    reader.unregister("u")
    assert node.server.registered == []
