"""configMap, secret, downwardAPI and projected, from their source to their files."""

import os
import stat
from datetime import timedelta

import pytest

from klet.api.authentication import BoundObjectReference
from klet.errors import KletError
from klet.model.allocation import desired_allocation
from klet.model.objects import ObjectMissing
from klet.objectcache.errors import NotSynced
from klet.testing.clock import START
from klet.volumes.atomic_writer import GRACE
from klet.volumes.errors import BadPath, VolumeSetupError
from klet.volumes.plugins.base import GENERATED_FILES, MountRequest
from klet.volumes.spec import VolumeSpec

CONFIG_MAP, SECRET = "kubernetes.io/configmap", "kubernetes.io/secret"
DOWNWARD, PROJECTED = "kubernetes.io/downward-api", "kubernetes.io/projected"
GROUP = 4242 if os.geteuid() == 0 else os.getegid()
NAME_ITEM = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}


@pytest.fixture
def show(machine, pod_with):
    """Sets up one volume and returns when it expires."""

    async def run(plugin, source, *, plugins=None, is_remount=False, **spec):
        pod = pod_with(source, **spec)
        request = MountRequest(
            pod=pod, allocation=desired_allocation(pod), spec=VolumeSpec(pod.spec.volumes[0]), is_remount=is_remount
        )
        return await (plugins or machine.plugins)[plugin].set_up(request)

    return run


def config(name="cfg", **source):
    return {"configMap": {"name": name, "defaultMode": 0o644, **source}}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_config_map_is_a_directory_on_disk(machine, show, config_map):
    machine.objects.config_maps["cfg"] = config_map(a="1", b="2")
    assert await show(CONFIG_MAP, config()) is None
    path = machine.path(CONFIG_MAP)
    assert ((path / "a").read_text(), (path / "b").read_text()) == ("1", "2")
    assert machine.mounter.mounts == {}
    assert machine.marker("wrapped_v").is_file()
    assert mode(path) == 0o777


async def test_a_secret_is_in_memory(machine, show, secret):
    machine.objects.secrets["key"] = secret(k="v")
    await show(SECRET, {"secret": {"secretName": "key", "defaultMode": 0o400}})
    path = machine.path(SECRET)
    assert (path / "k").read_text() == "v"
    assert mode(path / "k") == 0o400
    source, kind, options = machine.mounter.mounts[path]
    assert (source, kind, options) == ("tmpfs", "tmpfs", (f"size={16 << 30}",))


async def test_the_downward_api_is_in_memory(machine, show):
    source = {"downwardAPI": {"items": [NAME_ITEM], "defaultMode": 0o644}}
    await show(DOWNWARD, source)
    assert (machine.path(DOWNWARD) / "name").read_text() == "p"
    assert machine.path(DOWNWARD) in machine.mounter.mounts


@pytest.mark.parametrize("plugin", [CONFIG_MAP, SECRET, DOWNWARD, PROJECTED])
def test_containers_must_not_write_to_them(machine, plugin):
    assert machine.plugins[plugin].attributes(None) == GENERATED_FILES
    assert machine.plugins[plugin].requires_remount


async def test_a_missing_object_fails_before_the_disk_is_touched(machine, show):
    with pytest.raises(ObjectMissing, match=r'^configmap "cfg" not found$'):
        await show(CONFIG_MAP, config())
    assert not machine.path(CONFIG_MAP).exists()


async def test_an_optional_object_that_is_missing_is_empty(machine, show):
    await show(CONFIG_MAP, config(optional=True))
    assert [entry.name for entry in (machine.path(CONFIG_MAP) / "..data/").iterdir()] == []


async def test_optional_does_not_excuse_other_failures(machine, show):
    machine.objects.error = NotSynced("configmap")
    with pytest.raises(NotSynced):
        await show(CONFIG_MAP, config(optional=True))


@pytest.mark.parametrize(
    ("plugin", "source"),
    [
        (CONFIG_MAP, {"configMap": {"name": "cfg", "optional": True}}),
        (SECRET, {"secret": {"secretName": "key", "optional": True}}),
        (DOWNWARD, {"downwardAPI": {"items": []}}),
        (PROJECTED, {"projected": {"sources": []}}),
    ],
)
async def test_a_mode_there_must_be(show, plugin, source):
    with pytest.raises(VolumeSetupError, match=r"^no defaultMode used, not even the default value for it$"):
        await show(plugin, source)


async def test_a_change_reaches_the_files(machine, show, config_map):
    machine.objects.config_maps["cfg"] = config_map(a="1", old="x")
    await show(CONFIG_MAP, config())
    machine.objects.config_maps["cfg"] = config_map(a="2")
    await show(CONFIG_MAP, config(), is_remount=True)
    path = machine.path(CONFIG_MAP)
    assert sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("..")) == ["a"]
    assert (path / "a").read_text() == "2"


async def test_what_a_change_replaced_goes_ten_seconds_later(machine, show, config_map):
    """The volume is old at that instant, so that the manager comes again."""
    machine.objects.config_maps["cfg"] = config_map(a="1")
    assert await show(CONFIG_MAP, config()) is None
    path = machine.path(CONFIG_MAP)
    old = path / (path / "..data").readlink()
    machine.objects.config_maps["cfg"] = config_map(a="2")
    assert await show(CONFIG_MAP, config(), is_remount=True) == START + GRACE
    assert (old / "a").read_text() == "1"
    machine.clock.advance(GRACE)
    assert await show(CONFIG_MAP, config(), is_remount=True) is None
    assert not old.exists()


async def test_a_new_token_replaces_another_before_it_is_old(machine, show):
    source = {"projected": {"defaultMode": 0o644, "sources": [{"serviceAccountToken": {"path": "token"}}]}}
    assert await show(PROJECTED, source) == START + timedelta(minutes=48)
    assert await show(PROJECTED, source, is_remount=True) == START + GRACE


async def test_mount_points_of_others_are_made(machine, show, config_map):
    machine.objects.config_maps["cfg"] = config_map(a="1")
    mounts = [{"name": "v", "mountPath": "/etc/cfg"}, {"name": "x", "mountPath": "/etc/cfg/more"}]
    await show(CONFIG_MAP, config(), mounts=mounts)
    assert mode(machine.path(CONFIG_MAP) / "more") == 0o755
    await show(CONFIG_MAP, config(), mounts=mounts, is_remount=True)
    assert (machine.path(CONFIG_MAP) / "more").is_dir()


async def test_a_mount_point_that_cannot_be_made(machine, show, config_map):
    machine.objects.config_maps["cfg"] = config_map(a="1")
    mounts = [{"name": "v", "mountPath": "/cfg"}, {"name": "x", "mountPath": "/cfg/a/b"}]
    await show(CONFIG_MAP, config())
    with pytest.raises(VolumeSetupError, match=r"^unable to create nested volume mountpoints: "):
        await show(CONFIG_MAP, config(), mounts=mounts, is_remount=True)


async def test_a_first_write_that_fails_takes_the_volume_down(machine, show, config_map):
    machine.objects.config_maps["cfg"] = config_map(a="1", b="2")
    items = [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]
    with pytest.raises(KletError):
        await show(CONFIG_MAP, config(items=items))
    assert not machine.path(CONFIG_MAP).exists()
    assert not machine.marker("wrapped_v").exists()


async def test_a_later_write_that_fails_leaves_what_the_pod_has(machine, show, config_map):
    machine.objects.config_maps["cfg"] = config_map(a="1", b="2")
    await show(CONFIG_MAP, config())
    items = [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]
    with pytest.raises(KletError):
        await show(CONFIG_MAP, config(items=items), is_remount=True)
    assert (machine.path(CONFIG_MAP) / "a").read_text() == "1"


async def test_a_path_that_is_refused_touches_nothing(machine, show, config_map):
    machine.objects.config_maps["cfg"] = config_map(a="1")
    with pytest.raises(BadPath):
        await show(CONFIG_MAP, config(items=[{"key": "a", "path": "../../etc/passwd"}]))
    assert not machine.path(CONFIG_MAP).exists()


async def test_everything_goes_when_the_volume_does(machine, show, secret):
    machine.objects.secrets["key"] = secret(k="v")
    await show(SECRET, {"secret": {"secretName": "key", "defaultMode": 0o644}})
    await machine.plugins[SECRET].tear_down("u", "v")
    assert machine.mounter.mounts == {}
    assert not machine.path(SECRET).exists()
    assert not machine.marker("wrapped_v").exists()


async def test_the_group_of_the_pod_can_read(machine, show, config_map):
    machine.objects.config_maps["cfg"] = config_map(a="1")
    items = [{"key": "a", "path": "d/a"}]
    await show(CONFIG_MAP, config(defaultMode=0o400, items=items), securityContext={"fsGroup": GROUP})
    path = machine.path(CONFIG_MAP)
    assert (mode(path), path.stat().st_gid) == (0o2777, GROUP)
    assert (mode(path / "..data/"), mode(path / "d/")) == (0o2755, 0o2755)
    assert (mode(path / "d/a"), (path / "d/a").stat().st_gid) == (0o440, GROUP)


def projected(*sources):
    return {"projected": {"sources": list(sources), "defaultMode": 0o644}}


TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}


async def test_a_pods_usual_volume(machine, show, config_map):
    machine.objects.config_maps["kube-root-ca.crt"] = config_map(**{"ca.crt": "CA"})
    old_at = await show(
        PROJECTED,
        projected(
            TOKEN,
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ),
        serviceAccountName="default",
    )
    path = machine.path(PROJECTED)
    shown = {name: (path / name).read_text() for name in ("token", "ca.crt", "namespace")}
    assert shown == {"token": "token-1", "ca.crt": "CA", "namespace": "ns"}
    assert {mode(path / name) for name in shown} == {0o644}
    assert old_at == START + timedelta(minutes=48)
    ((namespace, account, request),) = machine.tokens.asked
    assert (namespace, account) == ("ns", "default")
    assert request.spec.audiences == ()
    assert request.spec.expiration_seconds == 3607
    bound = BoundObjectReference(api_version="v1", kind="Pod", name="p", uid="u")
    assert request.spec.bound_object_ref == bound


async def test_a_token_for_somebody_else(machine, show):
    await show(PROJECTED, projected({"serviceAccountToken": {"path": "t", "audience": "vault"}}))
    assert machine.tokens.asked[0][2].spec.audiences == ("vault",)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        pytest.param({}, (0o644, os.geteuid()), id="nobody in particular"),
        pytest.param({"runAsUser": os.geteuid()}, (0o600, os.geteuid()), id="one user"),
        pytest.param({"fsGroup": GROUP}, (0o640, os.geteuid()), id="a group"),
        pytest.param({"fsGroup": GROUP, "runAsUser": os.geteuid()}, (0o640, os.geteuid()), id="both"),
    ],
)
async def test_a_token_is_for_whom_it_is_meant(machine, show, context, expected):
    await show(PROJECTED, projected(TOKEN), securityContext=context)
    found = (machine.path(PROJECTED) / "token").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == expected


async def test_later_sources_win(machine, show, config_map, secret):
    machine.objects.config_maps["cfg"] = config_map(x="1", y="1")
    machine.objects.secrets["key"] = secret(x="2")
    await show(PROJECTED, projected({"configMap": {"name": "cfg"}}, {"secret": {"name": "key"}}))
    path = machine.path(PROJECTED)
    assert ((path / "x").read_text(), (path / "y").read_text()) == ("2", "1")


async def test_everything_that_is_wrong_is_reported_at_once(machine, show):
    machine.tokens.error = "failed to fetch token: away"
    with pytest.raises(VolumeSetupError) as caught:
        await show(PROJECTED, projected({"configMap": {"name": "cfg"}}, {"secret": {"name": "key"}}, TOKEN))
    expected = '[configmap "cfg" not found, secret "key" not found, failed to fetch token: away]'
    assert str(caught.value) == expected


async def test_optional_sources(machine, show):
    optional = {"name": "x", "optional": True}
    await show(PROJECTED, projected({"configMap": optional}, {"secret": optional}))
    assert (machine.path(PROJECTED) / "..data").is_dir()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(
            {"name": "b", "path": "p"},
            "ClusterTrustBundle projection is not supported in static kubelet mode",
            id="by name",
        ),
        pytest.param(
            {"signerName": "b", "path": "p"},
            "ClusterTrustBundle projection is not supported in static kubelet mode",
            id="by signer",
        ),
        pytest.param(
            {"path": "p"},
            "ClusterTrustBundle projection requires either name or signerName to be set",
            id="by nothing",
        ),
    ],
)
async def test_trust_bundles_are_refused(show, source, message):
    with pytest.raises(VolumeSetupError) as caught:
        await show(PROJECTED, projected({"clusterTrustBundle": source}))
    assert str(caught.value) == message


class Anchors:
    async def anchors(self, source):
        return f"certificates of {source.name}".encode()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, 0o644, id="for everyone"),
        pytest.param({"securityContext": {"fsGroup": GROUP}}, 0o640, id="for a group"),
    ],
)
async def test_trust_bundles_are_files(machine, show, spec, expected):
    machine.trust = Anchors()
    volume = projected({"clusterTrustBundle": {"name": "b", "path": "ca.pem"}})
    await show(PROJECTED, volume, plugins=machine.build(has_api=True), **spec)
    file = machine.path(PROJECTED) / "ca.pem"
    assert file.read_text() == "certificates of b"
    assert mode(file) == expected


async def test_the_tokens_of_a_pod_go_with_its_volume(machine, show):
    await show(PROJECTED, projected(TOKEN))
    await machine.plugins[PROJECTED].tear_down("u", "v")
    assert machine.tokens.forgotten == ["u"]


async def test_without_an_api_server_the_downward_api_still_works(machine, show):
    await show(PROJECTED, projected({"downwardAPI": {"items": [NAME_ITEM]}}), plugins=machine.build(has_api=False))
    assert (machine.path(PROJECTED) / "name").read_text() == "p"


async def test_without_an_api_server_nothing_else_does(machine, show):
    with pytest.raises(VolumeSetupError) as caught:
        await show(PROJECTED, projected(TOKEN), plugins=machine.build(has_api=False))
    assert str(caught.value) == "cannot setup projected volume v because kube client is not configured"
