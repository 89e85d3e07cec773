"""What a CSIDriver object, or its absence, means."""

import pytest

from klet.api.storage import CSIDriver, CSIDriverSpec
from klet.volumes.csi import driver_rules
from klet.volumes.csi.driver_rules import FsGroupPolicy
from klet.volumes.csi.source import CsiSource
from klet.volumes.errors import VolumeSetupError


def driver(**spec):
    return CSIDriver(spec=CSIDriverSpec(**spec))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(None, True, id="without an object volumes are attached"),
        pytest.param(driver(), True, id="unset means yes"),
        pytest.param(driver(attach_required=True), True, id="yes"),
        pytest.param(driver(attach_required=False), False, id="no"),
    ],
)
def test_requires_attach(found, expected):
    assert driver_rules.requires_attach(found) is expected


@pytest.mark.parametrize("found", [None, driver()])
def test_without_a_word_nothing_is_asked_for(found):
    assert not driver_rules.requires_republish(found)
    assert not driver_rules.supports_label(found)
    assert not driver_rules.wants_pod_info(found)
    assert not driver_rules.has_tokens_in_secrets(found, is_enabled=True)


def test_what_is_asked_for_is_given():
    found = driver(
        requires_republish=True, se_linux_mount=True, pod_info_on_mount=True, service_account_token_in_secrets=True
    )
    assert driver_rules.requires_republish(found)
    assert driver_rules.supports_label(found)
    assert driver_rules.wants_pod_info(found)
    assert driver_rules.has_tokens_in_secrets(found, is_enabled=True)
    assert not driver_rules.has_tokens_in_secrets(found, is_enabled=False)


@pytest.mark.parametrize(
    ("found", "mode", "error"),
    [
        pytest.param(None, "Persistent", None, id="persistent without an object"),
        pytest.param(
            None,
            "Ephemeral",
            'volume mode "Ephemeral" not supported by driver d (no CSIDriver object)',
            id="inline without an object",
        ),
        pytest.param(driver(), "Persistent", None, id="persistent is the default"),
        pytest.param(
            driver(volume_lifecycle_modes=("Persistent",)),
            "Ephemeral",
            'volume mode "Ephemeral" not supported by driver d (only supports ["Persistent"])',
            id="inline, of a driver for persistent ones",
        ),
        pytest.param(driver(volume_lifecycle_modes=("Persistent", "Ephemeral")), "Ephemeral", None, id="both"),
        pytest.param(
            driver(volume_lifecycle_modes=("Ephemeral",)),
            "Persistent",
            'volume mode "Persistent" not supported by driver d (only supports ["Ephemeral"])',
            id="persistent, of a driver for inline ones",
        ),
    ],
)
def test_lifecycle_modes(found, mode, error):
    if error is None:
        driver_rules.check_lifecycle_mode(found, "d", mode)
        return
    with pytest.raises(VolumeSetupError) as caught:
        driver_rules.check_lifecycle_mode(found, "d", mode)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(None, FsGroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE, id="no object"),
        pytest.param(driver(fs_group_policy="File"), FsGroupPolicy.FILE, id="File"),
        pytest.param(driver(fs_group_policy="None"), FsGroupPolicy.NONE, id="None"),
        pytest.param(
            driver(fs_group_policy="ReadWriteOnceWithFSType"), FsGroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE, id="usual"
        ),
        pytest.param(driver(fs_group_policy="Newer"), FsGroupPolicy.NONE, id="one that nobody knows"),
    ],
)
def test_fs_group_policy(found, expected):
    assert driver_rules.fs_group_policy(found) is expected


@pytest.mark.parametrize("policy", [None, ""])
def test_an_object_without_a_policy_is_an_error(policy):
    with pytest.raises(VolumeSetupError, match="expected valid fsGroupPolicy, received nil value or empty string"):
        driver_rules.fs_group_policy(driver(fs_group_policy=policy))


def source(*modes, fs_type="", read_only=False, is_inline=False):
    return CsiSource(
        driver="d", handle="h", name="n", fs_type=fs_type, read_only=read_only, access_modes=modes, is_inline=is_inline
    )


USUAL = FsGroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE


@pytest.mark.parametrize(
    ("group", "policy", "given", "expected"),
    [
        pytest.param(None, FsGroupPolicy.FILE, source("ReadWriteOnce", fs_type="ext4"), False, id="no group"),
        pytest.param(5, FsGroupPolicy.NONE, source("ReadWriteOnce", fs_type="ext4"), False, id="policy None"),
        pytest.param(5, FsGroupPolicy.FILE, source("ReadWriteOnce", read_only=True), False, id="read-only, File"),
        pytest.param(5, USUAL, source("ReadWriteOnce", fs_type="x", read_only=True), False, id="read-only"),
        pytest.param(5, FsGroupPolicy.FILE, source(), True, id="File: any type and mode"),
        pytest.param(5, FsGroupPolicy.FILE, source("ReadWriteMany"), True, id="File: many writers"),
        pytest.param(5, USUAL, source("ReadWriteOnce"), False, id="no type"),
        pytest.param(5, USUAL, source("ReadWriteOnce", fs_type="ext4"), True, id="one node"),
        pytest.param(5, USUAL, source("ReadWriteOncePod", fs_type="ext4"), True, id="one pod"),
        pytest.param(5, USUAL, source("ReadOnlyMany", "ReadWriteOnce", fs_type="ext4"), True, id="one among them"),
        pytest.param(5, USUAL, source(fs_type="ext4"), False, id="no access mode"),
        pytest.param(5, USUAL, source("ReadWriteMany", "ReadOnlyMany", fs_type="ext4"), False, id="many nodes only"),
        pytest.param(5, USUAL, source(fs_type="ext4", is_inline=True), True, id="inline"),
        pytest.param(5, USUAL, source(is_inline=True), False, id="inline without type"),
    ],
)
def test_who_changes_the_owner(group, policy, given, expected):
    assert driver_rules.changes_ownership(given, policy, group) is expected
