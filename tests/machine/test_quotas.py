"""A pod in a user namespace whose emptyDir is counted by a project quota, on filesystems that have them.

Debian's containerd knows no user namespaces: a newer one takes its place, with a directory of its own.
"""

import json
import time

import pytest

from klet.host.project_files import FIRST_PROJECT
from klet.testing.debian_packages import PackagesMissing
from klet.testing.newer_containerd import find_newer_containerd
from klet.testing.vm.debian import PAUSE_IMAGE
from klet.testing.vm.node import PATIENCE, UNIT, build_pod

PLACE = "/var/lib/quota"
IMAGE = "/root/quota.img"
RUNTIME = "/var/lib/containerd-newer"
DROP_IN = "/etc/systemd/system/containerd.service.d/newer.conf"
GATE = "LocalStorageCapacityIsolationFSQuotaMonitoring"
MIB = 1 << 20
FILESYSTEMS = [
    pytest.param("mkfs.ext4 -q -O quota,project -E quotatype=prjquota", id="ext4"),
    pytest.param("mkfs.xfs -q", id="xfs"),
]


@pytest.fixture(scope="module")
def newer_runtime(installed):
    try:
        programs = find_newer_containerd()
    except PackagesMissing as error:
        pytest.skip(f"no newer containerd: run scripts/newer-containerd; {error}")
    machine = installed.machine
    # To the same place: some of them name their loader by its path.
    machine.copy_in(programs.parent, str(programs.parents[1]))
    machine.write(
        DROP_IN,
        f"[Service]\nEnvironment=PATH={programs}:/usr/sbin:/usr/bin:/sbin:/bin\nExecStart=\n"
        f"ExecStart={programs}/containerd --root {RUNTIME} --state /run/containerd-newer\n",
    )
    installed.stop()
    machine.run("systemctl daemon-reload && systemctl restart containerd")
    pause = PAUSE_IMAGE.rpartition(":")[0]
    wanted = machine.output(f"{programs}/containerd config default | grep -oE '{pause}:[0-9.]+' | head -n 1")
    machine.run("for image in /var/lib/test-images/*.tar; do ctr -n k8s.io images import $image || exit 1; done")
    machine.run(f"ctr -n k8s.io images tag {PAUSE_IMAGE} {wanted}")
    yield
    installed.stop()
    machine.run(f"rm {DROP_IN}; systemctl daemon-reload; systemctl restart containerd; rm -rf {RUNTIME}")


@pytest.fixture
def counting(request, node, only_klet, newer_runtime):
    """A node whose root directory is on a filesystem with project quotas."""
    machine = node.machine
    machine.run(f"rm -f /etc/projects /etc/projid; mkdir -p {PLACE}; truncate -s 600M {IMAGE}")
    machine.run(f"{request.param} {IMAGE} && mount -o loop,prjquota {IMAGE} {PLACE}")
    node.start(f"--root-dir={PLACE}", featureGates={GATE: True}, volumeStatsAggPeriod="1s")
    yield node
    node.remove_pods()
    node.stop()
    machine.run(f"umount -R {PLACE} && rm {IMAGE}")


counted = pytest.mark.parametrize("counting", FILESYSTEMS, indirect=True)


def pod_with_volume(name, **spec):
    pod = build_pod(
        name,
        command=f"dd if=/dev/zero of=/v/file bs={MIB} count=3; exec sleep 100000",
        volumeMounts=[{"name": "v", "mountPath": "/v"}],
    )
    pod["spec"] |= {"volumes": [{"name": "v", "emptyDir": {}}], **spec}
    return pod


def usage(node, name):
    """Return what the summary says of the pod's volume; nothing as long as it was not measured."""
    answer = json.loads(node.machine.output("curl -fsS http://127.0.0.1:10255/stats/summary"))
    pods = {pod["podRef"]["name"].rpartition("-klet-machine")[0]: pod for pod in answer["pods"]}
    volumes = pods.get(name, {}).get("volume", [])
    return next(({"used": each["usedBytes"], "inodes": each["inodesUsed"]} for each in volumes), None)


def until_used(node, name, least):
    give_up = time.monotonic() + PATIENCE
    while (found := usage(node, name)) is None or found["used"] < least:
        assert time.monotonic() < give_up, f"{found}\n{node.log()}"
    return found


def sources(node):
    """Return by which means volumes were measured."""
    command = "curl -fsS http://127.0.0.1:10255/metrics | grep kubelet_volume_metric_collection_duration_seconds_count"
    lines = node.machine.output(f"{command} || true").splitlines()
    return {line.split('"')[1] for line in lines if not line.endswith(" 0")}


def projects(node):
    return node.machine.output("cat /etc/projects")


@counted
def test_the_volume_of_a_namespaced_pod_is_counted_by_its_quota(counting):
    node = counting
    node.apply(pod_with_volume("namespaced", hostUsers=False))
    pod = node.until_running("namespaced")["namespaced"]
    assert until_used(node, "namespaced", 3 * MIB)["inodes"] == 2
    assert sources(node) == {"fsquota"}
    volume = f"{PLACE}/pods/{pod.metadata.uid}/volumes/kubernetes.io~empty-dir/v"
    assert projects(node) == f"{FIRST_PROJECT}:{volume}"
    [status] = pod.status.container_statuses
    container = status.container_id.removeprefix("containerd://")
    run = f"ctr -n k8s.io tasks exec --exec-id more {container}"
    # Its root is nobody of the host, and what it writes is counted.
    assert node.machine.output(f"{run} cat /proc/self/uid_map").split()[:2] != ["0", "0"]
    node.machine.run(f"{run} dd if=/dev/zero of=/v/more bs={MIB} count=5")
    assert until_used(node, "namespaced", 8 * MIB)["inodes"] == 3
    # The next agent finds the project, and goes on.
    node.machine.run(f"systemctl restart {UNIT}")
    assert until_used(node, "namespaced", 8 * MIB)["inodes"] == 3
    assert sources(node) == {"fsquota"}
    assert projects(node) == f"{FIRST_PROJECT}:{volume}"
    node.remove_pods()
    node.until_true(f"test ! -e {volume}")
    assert projects(node) == ""
    assert "volume" not in node.machine.output(f"repquota -P {PLACE}")


@pytest.mark.parametrize("counting", FILESYSTEMS[:1], indirect=True)
def test_the_volume_of_another_pod_is_walked(counting):
    node = counting
    node.apply(pod_with_volume("plain"))
    node.until_running("plain")
    assert until_used(node, "plain", 3 * MIB)["inodes"] == 2
    assert sources(node) == {"du"}
    assert node.machine.run("test -e /etc/projects", check=False).code != 0
