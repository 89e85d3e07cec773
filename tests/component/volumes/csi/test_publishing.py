"""SetUp and TearDown against the driver: the reference's cases, and what is left on disk."""

import json
import os
import stat

import pytest

from klet.api.storage import CSIDriver, CSIDriverSpec, TokenRequest
from klet.csi.client import NodeCapability
from klet.csi.errors import CsiCallFailed
from klet.objectcache.errors import TokenFailed
from klet.testing.csi.driver import NAME
from klet.testing.csi.faults import DriverFault, Mishap, Moment
from klet.volumes.csi.places import inline_handle
from klet.volumes.errors import TransientFailure, UncertainProgress, VolumeSetupError
from klet.wire.codes import Code

UID = "11111111-2222-3333-4444-555555555555"
NON_FINAL = (Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.ABORTED)
FILE = f"pods/{UID}/volumes/kubernetes.io~csi/pvc-7f3a/vol_data.json"
GROUP = 4242 if os.geteuid() == 0 else os.getegid()


@pytest.fixture
async def staged(bench):
    await bench.stage()
    return bench


def read_file(bench, name="pvc-7f3a"):
    return json.loads((bench.target(name).parent / "vol_data.json").read_text())


async def test_a_volume_is_published_with_its_file_and_all_of_it_goes(staged):
    await staged.publish(staged.persistent(volumeAttributes={"k": "v"}, options=("noatime",)))
    target = staged.root / f"pods/{UID}/volumes/kubernetes.io~csi/pvc-7f3a/mount"
    assert staged.plugin.path(UID, staged.persistent()) == str(target)
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o750
    (request,) = staged.driver.requests("NodePublishVolume")
    assert (request.volume_id, request.target_path, request.staging_target_path, request.readonly) == (
        "vol-0a1b",
        str(target),
        str(staged.staging),
        False,
    )
    assert list(request.volume_capability.mount.mount_flags) == ["noatime"]
    assert (dict(request.volume_context), dict(request.secrets), dict(request.publish_context)) == ({"k": "v"}, {}, {})
    found = read_file(staged)
    assert found.pop("attachmentID").startswith("csi-")
    assert found == {
        "driverName": NAME,
        "nodeName": "node-1",
        "specVolID": "pvc-7f3a",
        "volumeHandle": "vol-0a1b",
        "volumeLifecycleMode": "Persistent",
    }
    await staged.unpublish()
    await staged.unstage()
    assert staged.leftovers() == []


async def test_publishing_and_unpublishing_twice_does_no_harm(staged):
    await staged.publish()
    await staged.publish()
    await staged.unpublish()
    await staged.unpublish()
    assert staged.driver.order()[1:] == ["NodePublishVolume", "NodePublishVolume", "NodeUnpublishVolume"]


async def test_a_claim_for_reading_is_published_read_only(staged):
    await staged.publish(staged.persistent(read_only=True))
    assert staged.driver.requests("NodePublishVolume")[0].readonly
    assert staged.plugin.attributes(staged.persistent(read_only=True)).read_only


async def test_an_inline_volume_has_a_handle_of_its_own_and_no_stage(bench):
    bench.describe(volume_lifecycle_modes=("Ephemeral",), pod_info_on_mount=True)
    bench.api.secrets["default", "s"] = {"key": "hush"}
    spec = bench.inline(readOnly=True, fsType="xfs", volumeAttributes={"size": "1"}, nodePublishSecretRef={"name": "s"})
    await bench.publish(spec)
    (request,) = bench.driver.requests("NodePublishVolume")
    assert request.volume_id == inline_handle(UID, "scratch")
    assert (request.staging_target_path, request.readonly, dict(request.secrets)) == ("", True, {"key": "hush"})
    assert request.volume_capability.mount.fs_type == "xfs"
    assert request.volume_context["csi.storage.k8s.io/ephemeral"] == "true"
    assert request.volume_context["size"] == "1"
    assert read_file(bench, "scratch")["volumeLifecycleMode"] == "Ephemeral"
    assert bench.plugin.attributes(spec).read_only
    await bench.unpublish("scratch")
    assert bench.leftovers() == []


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        pytest.param(None, "(no CSIDriver object)", id="no object"),
        pytest.param(
            CSIDriver(spec=CSIDriverSpec(fs_group_policy="File")), '(only supports ["Persistent"])', id="not inline"
        ),
    ],
)
async def test_an_inline_volume_of_a_driver_that_has_none_waits(bench, driver, message, fails):
    bench.drivers.objects.clear()
    if driver is not None:
        bench.drivers.objects[NAME] = driver
    beginning = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: "
    with fails(TransientFailure, f'{beginning}volume mode "Ephemeral" not supported by driver {NAME} {message}'):
        await bench.publish(bench.inline())
    assert bench.driver.order() == []


async def test_pod_info_is_given_to_drivers_that_ask(staged):
    staged.describe(pod_info_on_mount=True)
    await staged.publish()
    (request,) = staged.driver.requests("NodePublishVolume")
    assert dict(request.volume_context) == {
        "csi.storage.k8s.io/pod.name": "web-0",
        "csi.storage.k8s.io/pod.namespace": "default",
        "csi.storage.k8s.io/pod.uid": UID,
        "csi.storage.k8s.io/serviceAccount.name": "web",
        "csi.storage.k8s.io/ephemeral": "false",
    }


@pytest.mark.parametrize("in_secrets", [True, False])
async def test_tokens_are_bound_to_the_pod_and_go_where_the_driver_wants_them(staged, in_secrets, caplog):
    requests = (TokenRequest(audience="aws", expiration_seconds=3600), TokenRequest(audience=""))
    staged.describe(token_requests=requests, service_account_token_in_secrets=in_secrets)
    await staged.publish()
    (request,) = staged.driver.requests("NodePublishVolume")
    holder, other = request.volume_context, request.secrets
    if in_secrets:
        holder, other = other, holder
    tokens = json.loads(holder["csi.storage.k8s.io/serviceAccount.tokens"])
    assert tokens == {
        "aws": {"token": "token-1", "expirationTimestamp": "2030-01-01T00:00:00Z"},
        "": {"token": "token-2", "expirationTimestamp": "2030-01-01T00:00:00Z"},
    }
    assert dict(other) == {}
    (namespace, account, first), (_, _, second) = staged.api.tokens
    assert (namespace, account, first.spec.audiences, first.spec.expiration_seconds) == (
        "default",
        "web",
        ("aws",),
        3600,
    )
    assert second.spec.audiences == ()
    assert first.spec.bound_object_ref.uid == UID
    assert "token-1" not in caplog.text
    assert b"token-1" not in b"".join(path.read_bytes() for path in staged.root.rglob("*") if path.is_file())


async def test_a_token_that_is_not_given_out_is_waited_for(staged, fails):
    staged.describe(token_requests=(TokenRequest(audience="a"),))
    staged.api.token_error = TokenFailed("no")
    with fails(
        TransientFailure,
        "kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: no",
    ):
        await staged.publish()


async def test_a_missing_publish_secret_is_waited_for(staged, fails):
    missing = 'kubernetes.io/csi: failed to find the secret s in the namespace ns with error: secrets "s" not found'
    with fails(TransientFailure, f"fetching NodePublishSecretRef ns/s failed: {missing}"):
        await staged.publish(staged.persistent(nodePublishSecretRef={"name": "s", "namespace": "ns"}))


async def test_a_missing_attachment_is_waited_for(staged):
    staged.describe(attach_required=True)
    with pytest.raises(TransientFailure, match=r"mounter\.SetUpAt failed to fetch publishContext: volumeattach"):
        await staged.publish()
    staged.attach(attachment_metadata={"a": "b"})
    await staged.publish()
    assert dict(staged.driver.requests("NodePublishVolume")[0].publish_context) == {"a": "b"}


async def test_an_object_without_fs_group_policy_is_waited_for(staged):
    staged.describe(fs_group_policy=None)
    with pytest.raises(TransientFailure, match="expected valid fsGroupPolicy, received nil value or empty string"):
        await staged.publish()


async def test_an_unknown_driver_is_waited_for(bench, fails):
    bench.drivers.endpoints.clear()
    missing = f"driver name {NAME} not found in the list of registered CSI drivers"
    with fails(TransientFailure, f"kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {missing}"):
        await bench.publish()
    assert bench.leftovers() == []


@pytest.mark.parametrize("code", NON_FINAL)
async def test_an_error_that_is_not_final_keeps_the_file(staged, code, fails):
    staged.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=code, message="busy"))
    with fails(UncertainProgress, f"rpc error: code = {code} desc = busy"):
        await staged.publish()
    assert FILE in staged.data_files()
    await staged.unpublish()
    assert staged.driver.requests("NodeUnpublishVolume")
    assert FILE not in staged.data_files()


async def test_a_final_error_removes_the_file(staged, fails):
    staged.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Code.INTERNAL, message="no"))
    with fails(CsiCallFailed, "rpc error: code = Internal desc = no"):
        await staged.publish()
    assert not staged.target().parent.exists()


async def test_half_a_publish_with_a_final_error_is_removed(staged):
    staged.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Code.INTERNAL, message="no", at=Moment.PARTIAL))
    with pytest.raises(CsiCallFailed):
        await staged.publish()
    assert not staged.target().parent.exists()


async def test_a_whole_publish_with_a_final_error_is_uncertain_and_kept(staged, fails):
    staged.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Code.INTERNAL, message="no", at=Moment.AFTER))
    with fails(UncertainProgress, "rpc error: code = Internal desc = no"):
        await staged.publish()
    assert FILE in staged.data_files()
    await staged.unpublish()
    assert staged.driver.memory.published == {}


@pytest.mark.parametrize("code", [Code.INTERNAL, Code.UNAVAILABLE])
async def test_a_failed_remount_keeps_everything(staged, code):
    await staged.publish()
    staged.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=code, message="no"))
    with pytest.raises(UncertainProgress if code is Code.UNAVAILABLE else CsiCallFailed):
        await staged.publish(is_remount=True)
    assert FILE in staged.data_files()
    assert staged.target().is_dir()


async def test_a_republish_gets_secrets_and_tokens_again(staged):
    staged.describe(requires_republish=True, token_requests=(TokenRequest(audience="a"),))
    assert staged.plugin.remounts(staged.persistent())
    staged.api.secrets["ns", "s"] = {"key": "old"}
    spec = staged.persistent(nodePublishSecretRef={"name": "s", "namespace": "ns"})
    await staged.publish(spec)
    staged.api.secrets["ns", "s"] = {"key": "new"}
    await staged.publish(spec, is_remount=True)
    first, second = staged.driver.requests("NodePublishVolume")
    assert (first.secrets["key"], second.secrets["key"]) == ("old", "new")
    assert len(staged.api.tokens) == 2


async def test_a_driver_that_dies_leaves_it_uncertain_and_takes_it_down_later(staged):
    staged.driver.faults.add(DriverFault(rpc="NodePublishVolume", does=Mishap.DIE, at=Moment.AFTER))
    with pytest.raises(UncertainProgress):
        await staged.publish()
    await staged.server.start()
    await staged.unpublish()
    assert staged.driver.memory.published == {}


async def test_capabilities_that_cannot_be_read_change_nothing(staged):
    staged.driver.faults.add(DriverFault(rpc="NodeGetCapabilities", does=Code.UNAVAILABLE, message="no"))
    with pytest.raises(TransientFailure, match="failed to check for STAGE_UNSTAGE_VOLUME capability"):
        await staged.publish()
    assert not staged.target().parent.exists()


@pytest.mark.parametrize(
    ("has_capability", "policy", "expected"),
    [
        pytest.param(False, "ReadWriteOnceWithFSType", True, id="the agent changes the owner"),
        pytest.param(True, "ReadWriteOnceWithFSType", False, id="the driver does"),
        pytest.param(False, "None", False, id="nobody does"),
    ],
)
async def test_files_are_given_to_the_pods_group(bench, has_capability, policy, expected):
    bench.describe(fs_group_policy=policy)
    if has_capability:
        bench.allow(NodeCapability.VOLUME_MOUNT_GROUP)
    else:
        bench.allow()
    await bench.publish(pod=bench.pod(securityContext={"fsGroup": GROUP}))
    (request,) = bench.driver.requests("NodePublishVolume")
    assert request.volume_capability.mount.volume_mount_group == (str(GROUP) if has_capability else "")
    found = bench.target().stat()
    assert (found.st_gid == GROUP and found.st_mode & stat.S_ISGID != 0) == expected


async def test_files_of_which_the_owner_cannot_be_changed_are_uncertain(bench, tmp_path):
    bench.allow()
    bench.target().parent.mkdir(parents=True)
    bench.target().symlink_to(tmp_path)
    mode = stat.S_IMODE(tmp_path.stat().st_mode)
    with pytest.raises(UncertainProgress, match=r"^applyFSGroup failed for vol vol-0a1b: "):
        await bench.publish(pod=bench.pod(securityContext={"fsGroup": GROUP}))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode, "a link put there meanwhile is not followed"


async def test_a_volume_without_file_was_never_given_to_the_driver(bench):
    bench.target().mkdir(parents=True)
    await bench.unpublish()
    assert bench.driver.calls == []
    assert bench.leftovers() == []


async def test_a_volume_without_file_but_with_content_stays(bench):
    bench.target().mkdir(parents=True)
    (bench.target() / "data").write_text("precious")
    with pytest.raises(Exception, match="Directory not empty"):
        await bench.unpublish()
    assert (bench.target() / "data").read_text() == "precious"


async def test_a_bad_file_is_an_error_and_nothing_is_removed(staged):
    await staged.publish()
    file = staged.root / FILE
    file.write_text("{")
    with pytest.raises(VolumeSetupError, match=r"unmounter failed to load volume data file \[.*vol_data.json\]: "):
        await staged.unpublish()
    assert staged.target().is_dir()


async def test_a_driver_that_fails_to_unpublish_keeps_everything(staged, fails):
    await staged.publish()
    staged.driver.faults.add(DriverFault(rpc="NodeUnpublishVolume", does=Code.INTERNAL, message="no"))
    with fails(
        VolumeSetupError,
        "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = Internal desc = no",
    ):
        await staged.unpublish()
    assert FILE in staged.data_files()


async def test_what_a_driver_only_claims_to_have_unpublished_is_not_removed(staged):
    await staged.publish()
    (staged.target() / "data").write_text("precious")
    staged.driver.faults.add(DriverFault(rpc="NodeUnpublishVolume", does=Mishap.LIE))
    with pytest.raises(VolumeSetupError, match=r"Unmounter\.TearDownAt failed to clean mount dir"):
        await staged.unpublish()
    assert (staged.target() / "data").exists()
    assert FILE in staged.data_files()


async def test_a_file_that_was_cut_short_never_replaces_the_old_one(staged):
    await staged.publish()
    fresh = staged.root / f"{FILE}.new"
    fresh.write_text("{")  # as a run that was killed while it wrote leaves it
    staged.describe(se_linux_mount=True)
    await staged.publish(label="u:r:t:s0", is_remount=True)
    assert read_file(staged)["seLinuxMountContext"] == "u:r:t:s0"
    fresh.write_text("{")
    await staged.unpublish()
    await staged.unstage()
    assert staged.leftovers() == []
