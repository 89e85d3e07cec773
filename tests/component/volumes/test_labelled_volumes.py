"""Volumes that are mounted with the SELinux label of their pod."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.security import SecurityContext, SELinuxOptions
from klet.host.mountinfo import parse_mountinfo
from klet.volumes.errors import WaitFailed
from klet.volumes.labels import LabelRules

LABEL = "system_u:object_r:container_file_t:s0:c1"
OTHER = "system_u:object_r:container_file_t:s0:c2"


@pytest.fixture
async def labelling(staged):
    staged.labels = LabelRules(is_on=True, has_all_modes=True)
    staged.begin()
    staged.disks.is_labelling = True
    staged.cluster.add_claim(disk="local-1")
    staged.cluster.attach()
    await staged.start()
    return staged


@pytest.fixture
def counted(labelling):
    """What is counted of labels, without zeros."""
    prefix = "volume_manager_selinux_"

    def read():
        found = labelling.metrics(prefix)
        return {name.removeprefix(prefix): value for name, value in found.items() if value != "0"}

    return read


@pytest.fixture
async def relabelling(staged):
    """Only volumes for one pod are mounted with a label: others are counted."""
    staged.labels = LabelRules(is_on=True)
    staged.begin()
    staged.disks.is_labelling = True
    staged.cluster.add_claim(disk="local-1")
    staged.cluster.attach()
    await staged.start()
    return staged


async def test_both_stages_get_the_label(labelling, pod_on):
    await labelling.wait(pod_on(claims=["c"], seLinuxOptions={"level": "s0:c1"}))
    assert labelling.disks.labels == [("device", LABEL), ("u", LABEL)]
    assert not labelling.volumes.mounted_volumes("u")["c"].attributes.relabels


async def test_without_a_label_there_is_none(labelling, pod_on):
    await labelling.wait(pod_on(claims=["c"]))
    assert labelling.disks.labels == [("device", ""), ("u", "")]


async def test_a_pod_with_another_label_cannot_have_the_volume_yet(labelling, pod_on):
    await labelling.wait(pod_on(claims=["c"], uid="u1", seLinuxOptions={"level": "s0:c1"}))
    second = pod_on(claims=["c"], uid="u2", seLinuxOptions={"level": "s0:c2"})
    waiter = await labelling.wait(second)
    with pytest.raises(WaitFailed, match=f'conflicting SELinux labels of volume pv-local-1: "{LABEL}" and "{OTHER}"'):
        await waiter
    await labelling.end("u1")
    again = await labelling.wait(second)
    assert again.done()
    assert labelling.disks.labels[-2:] == [("device", OTHER), ("u2", OTHER)]


async def test_a_device_is_unmounted_for_a_pod_with_another_label(labelling, pod_on):
    await labelling.wait(pod_on(claims=["c"], uid="u1", seLinuxOptions={"level": "s0:c1"}))
    path = "/plugins/kubernetes.io/gce-pd/mounts/local-1"
    labelling.devices.elsewhere[path] = ["/mnt/mine"]
    await labelling.end("u1")
    waiter = await labelling.wait(pod_on(claims=["c"], uid="u2", seLinuxOptions={"level": "s0:c2"}))
    assert not waiter.done()
    labelling.devices.elsewhere.clear()
    await labelling.settle(timedelta(seconds=1))
    assert waiter.done()
    assert labelling.disks.labels == [("device", LABEL), ("u1", LABEL), ("device", OTHER), ("u2", OTHER)]


@pytest.fixture
async def restarted(staged):
    """An agent whose previous run has mounted the disk with a label, for a pod that is gone."""
    staged.labels = LabelRules(is_on=True, has_all_modes=True)
    staged.begin()
    staged.disks.is_labelling = True
    staged.cluster.add_claim(disk="local-1")
    staged.rack.staged["local-1"] = False
    staged.rack.directories["old", "pv-local-1"] = "local-1"
    path = "/plugins/kubernetes.io/gce-pd/mounts/local-1"
    line = f'40 30 8:0 / {path} rw,relatime shared:1 - ext4 /dev/sda rw,context="{LABEL}"'
    staged.devices.table = parse_mountinfo(line)
    staged.cluster.attach()
    await staged.start()
    return staged


async def test_what_a_previous_run_mounted_with_another_label_is_unmounted_first(restarted, pod_on):
    waiter = await restarted.wait(pod_on(claims=["c"], uid="u2", seLinuxOptions={"level": "s0:c2"}))
    assert not waiter.done()
    assert restarted.disks.labels == []
    await restarted.end("old")
    restarted.volumes.release_unused()
    await restarted.settle()
    assert waiter.done()
    assert restarted.disks.calls[:3] == [
        ("tear_down", "old", "pv-local-1"),
        ("unmount_device", "local-1", ""),
        ("mount_device", "local-1"),
    ]
    assert restarted.disks.labels == [("device", OTHER), ("u2", OTHER)]


async def test_what_a_previous_run_mounted_with_the_same_label_stays(restarted, pod_on):
    assert (await restarted.wait(pod_on(claims=["c"], uid="u2", seLinuxOptions={"level": "s0:c1"}))).done()
    assert ("unmount_device", "local-1", "") not in restarted.disks.calls


async def test_pods_with_the_same_label_share_it(labelling, pod_on):
    for uid in ("u1", "u2"):
        assert (await labelling.wait(pod_on(claims=["c"], uid=uid, seLinuxOptions={"level": "s0:c1"}))).done()


RWO = '{access_mode="RWO"}'
RWO_PD = '{access_mode="RWO",volume_plugin="kubernetes.io/gce-pd"}'


def two_labels(pod_on, uid="u"):
    pod = pod_on(claims=["c"], uid=uid)
    (container,) = pod.spec.containers
    made = [
        replace(container, name=level, security_context=SecurityContext(se_linux_options=SELinuxOptions(level=level)))
        for level in ("s0:c1", "s0:c2")
    ]
    return replace(pod, spec=replace(pod.spec, containers=tuple(made)))


async def test_pods_that_cannot_have_a_volume_are_counted(labelling, pod_on, counted):
    await labelling.wait(pod_on(claims=["c"], uid="u1", seLinuxOptions={"level": "s0:c1"}))
    assert counted() == {f"volumes_admitted_total{RWO_PD}": "1"}
    waiter = await labelling.wait(pod_on(claims=["c"], uid="u2", seLinuxOptions={"level": "s0:c2"}))
    with pytest.raises(WaitFailed):
        await waiter
    waiter = await labelling.wait(two_labels(pod_on, uid="u3"))
    with pytest.raises(WaitFailed, match="multiple SELinux labels found"):
        await waiter
    assert counted() == {
        f"volumes_admitted_total{RWO_PD}": "1",
        f"volume_context_mismatch_errors_total{RWO_PD}": "1",
        f"pod_context_mismatch_errors_total{RWO}": "1",
    }


async def test_pods_that_could_not_have_a_volume_if_it_were_labelled_are_counted(relabelling, pod_on):
    for uid, level in (("u1", "s0:c1"), ("u2", "s0:c2")):
        assert (await relabelling.wait(pod_on(claims=["c"], uid=uid, seLinuxOptions={"level": level}))).done()
    assert (await relabelling.wait(two_labels(pod_on, uid="u3"))).done()
    assert set(relabelling.disks.labels) == {("device", ""), ("u1", ""), ("u2", ""), ("u3", "")}
    found = relabelling.metrics("volume_manager_selinux_")
    assert {name.removeprefix("volume_manager_selinux_"): value for name, value in found.items() if value != "0"} == {
        f"volumes_admitted_total{RWO_PD}": "1",
        f"volume_context_mismatch_warnings_total{RWO_PD}": "2",
        f"pod_context_mismatch_warnings_total{RWO}": "1",
    }


async def test_a_machine_without_selinux_counts_nothing(staged):
    assert staged.metrics("volume_manager_selinux_") == {}
