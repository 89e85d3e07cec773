"""Which volumes get a project quota, and when they lose it."""

import logging

import pytest

from klet.host.errors import FileError
from klet.host.project_files import FIRST_PROJECT
from klet.model.allocation import desired_allocation
from klet.volumes.plugins.base import MountRequest
from klet.volumes.quotas import wants_quota
from klet.volumes.spec import VolumeSpec

EMPTY_DIR, CONFIG_MAP = "kubernetes.io/empty-dir", "kubernetes.io/configmap"
SECRET, DOWNWARD = "kubernetes.io/secret", "kubernetes.io/downward-api"
DISK = {"emptyDir": {}}
NAMESPACED = {"hostUsers": False}


@pytest.fixture
def request_for(pod_with):
    def make(source, **spec):
        pod = pod_with(source, **spec)
        return MountRequest(pod=pod, allocation=desired_allocation(pod), spec=VolumeSpec(pod.spec.volumes[0]))

    return make


@pytest.fixture
def listed(machine):
    def read():
        files = machine.project_files
        return files.projects.read_text() if files.projects.exists() else ""

    return read


@pytest.mark.parametrize(
    ("spec", "medium", "expected"),
    [
        pytest.param(NAMESPACED, "", True, id="on disk, in a user namespace"),
        pytest.param({}, "", False, id="the users of the host may change the project of their files"),
        pytest.param({"hostUsers": True}, "", False, id="so may those that the pod asks for"),
        pytest.param(NAMESPACED, "Memory", False, id="memory is counted by its mount"),
        pytest.param(NAMESPACED, "HugePages", False, id="so are huge pages"),
        pytest.param(NAMESPACED, "HugePages-2Mi", False, id="of any size"),
    ],
)
def test_wants_quota(pod_with, spec, medium, expected):
    assert wants_quota(pod_with(DISK, **spec), medium) is expected


@pytest.mark.parametrize(
    ("plugin", "source", "spec", "expected"),
    [
        pytest.param(EMPTY_DIR, DISK, NAMESPACED, True, id="an emptyDir on disk"),
        pytest.param(EMPTY_DIR, {"emptyDir": {"sizeLimit": "1Mi"}}, NAMESPACED, True, id="one with a limit"),
        pytest.param(
            CONFIG_MAP,
            {"configMap": {"defaultMode": 420, "name": "cfg", "optional": True}},
            NAMESPACED,
            True,
            id="a config map",
        ),
        pytest.param(EMPTY_DIR, DISK, {}, False, id="an emptyDir without a user namespace"),
        pytest.param(
            CONFIG_MAP,
            {"configMap": {"defaultMode": 420, "name": "cfg", "optional": True}},
            {},
            False,
            id="such a config map",
        ),
        pytest.param(EMPTY_DIR, {"emptyDir": {"medium": "Memory"}}, NAMESPACED, False, id="an emptyDir in memory"),
        pytest.param(
            SECRET,
            {"secret": {"defaultMode": 420, "secretName": "s", "optional": True}},
            NAMESPACED,
            False,
            id="a secret",
        ),
        pytest.param(DOWNWARD, {"downwardAPI": {"defaultMode": 420}}, NAMESPACED, False, id="downward API"),
    ],
)
async def test_a_volume_has_a_quota_until_it_is_taken_down(
    machine, request_for, listed, plugin, source, spec, expected
):
    request = request_for(source, **spec)
    await machine.plugins[plugin].set_up(request)
    assert listed() == (f"{FIRST_PROJECT}:{machine.path(plugin)}\n" if expected else "")
    await machine.plugins[plugin].tear_down(request.uid, "v")
    assert listed() == ""
    assert not machine.path(plugin).exists()
    assert machine.kernel.limits == ({FIRST_PROJECT: 0} if expected else {})


async def test_the_files_of_a_config_map_are_written_below_its_project(machine, request_for, config_map):
    machine.objects.config_maps["cfg"] = config_map(key="value")
    await machine.plugins[CONFIG_MAP].set_up(
        request_for({"configMap": {"defaultMode": 420, "name": "cfg"}}, **NAMESPACED)
    )
    assert (machine.path(CONFIG_MAP) / "key").read_text() == "value"
    # The directory alone was marked: the kernel passes its project on to what comes after.
    assert machine.kernel.written == ["v"]


async def test_setting_up_fails_without_the_quota_and_is_done_with_it(machine, request_for, listed):
    request = request_for(DISK, **NAMESPACED)
    machine.kernel.refuses_marks = True
    with pytest.raises(FileError, match="cannot assign a project quota"):
        await machine.plugins[EMPTY_DIR].set_up(request)
    assert machine.marker("v").exists()
    machine.kernel.refuses_marks = False
    await machine.plugins[EMPTY_DIR].set_up(request)
    assert listed() == f"{FIRST_PROJECT}:{machine.path(EMPTY_DIR)}\n"


async def test_a_volume_without_quotas_below_is_set_up(machine, request_for, listed):
    machine.kernel.is_on = False
    await machine.plugins[EMPTY_DIR].set_up(request_for(DISK, **NAMESPACED))
    assert machine.path(EMPTY_DIR).is_dir()
    assert listed() == ""


async def test_a_volume_is_removed_although_its_quota_cannot_be_released(machine, request_for, caplog):
    request = request_for(DISK, **NAMESPACED)
    await machine.plugins[EMPTY_DIR].set_up(request)
    machine.project_files.projects.unlink()
    machine.project_files.projects.symlink_to("/dev/null")
    with caplog.at_level(logging.WARNING):
        await machine.plugins[EMPTY_DIR].tear_down(request.uid, "v")
    assert not machine.path(EMPTY_DIR).exists()
    assert [record.message for record in caplog.records] == ["Failed to clear quota"]
