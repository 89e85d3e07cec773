"""Volumes of servers inside the machine: NFS, and a disk that tgt shows over iSCSI."""

import pytest

from klet.testing.vm.node import PATIENCE, UNIT, build_pod

EXPORT = "/srv/volumes"
IQN = "iqn.2030-01.example.klet:disk"
PLACES = "/var/lib/kubelet/plugins/kubernetes.io"
TGT = f"""
set -e
systemctl start tgt iscsid
truncate -s 64M /srv/disk.img
tgtadm --lld iscsi --op new --mode target --tid 1 -T {IQN}
tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b /srv/disk.img
tgtadm --lld iscsi --op bind --mode target --tid 1 -I ALL
"""
NO_TGT = """
iscsiadm -m node -u
iscsiadm -m node -o delete
tgtadm --lld iscsi --op delete --force --mode target --tid 1
systemctl stop tgt iscsid iscsid.socket
rm -f /srv/disk.img
"""


@pytest.fixture
def nfs(machine):
    """An NFS server; what it exports."""
    machine.run(
        f"mkdir -p {EXPORT} && chmod 777 {EXPORT} && "
        f"echo '{EXPORT} *(rw,insecure,no_root_squash,no_subtree_check,fsid=0)' >/etc/exports && "
        "systemctl start nfs-server && exportfs -ra"
    )
    yield EXPORT
    machine.run(f"systemctl stop nfs-server; rm -rf {EXPORT} /etc/exports")


@pytest.fixture
def target(machine):
    """An iSCSI target with one empty disk, and the initiator's daemon."""
    machine.run(TGT)
    yield IQN
    machine.run(NO_TGT, check=False)


def with_volume(name, source, *, command="exec sleep 100000", read_only=False):
    pod = build_pod(name, command=command, volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": read_only}])
    pod["spec"]["volumes"] = [{"name": "v", **source}]
    return pod


def nfs_source(*, read_only=False):
    return {"nfs": {"server": "127.0.0.1", "path": "/", "readOnly": read_only}}


def iscsi_source():
    return {"iscsi": {"targetPortal": "127.0.0.1", "iqn": IQN, "lun": 1, "fsType": "ext4"}}


def until_mounted(node, kind, count, *, patience=PATIENCE):
    """Wait until that many volumes are mounted: a pod is no longer reported before its volumes are unmounted."""
    found = f"grep -c '/kubernetes.io~{kind}/\\|{PLACES}/{kind}/' /proc/self/mountinfo"
    node.until_true(f"test $({found}) = {count}", patience=patience)


def test_pods_share_an_nfs_export_and_leave_no_mount(node, nfs):
    node.start()
    node.apply(with_volume("writer", nfs_source(), command="echo from-a-pod >/v/file; exec sleep 100000"))
    node.until_running("writer")
    node.apply(with_volume("reader", nfs_source(read_only=True), command="cat /v/file && exec sleep 100000"))
    node.until_running("writer", "reader")
    assert node.machine.output(f"cat {nfs}/file") == "from-a-pod"
    until_mounted(node, "nfs", 2)
    table = node.machine.output("grep kubernetes.io~nfs /proc/mounts")
    assert all(line.split()[2] == "nfs4" for line in table.splitlines())
    assert sum(line.split()[3].startswith("ro,") for line in table.splitlines()) == 1
    node.withdraw("writer")
    node.until(lambda pods: set(pods) == {"reader"}, what="the writer is gone")
    until_mounted(node, "nfs", 1)
    node.withdraw("reader")
    node.until(lambda pods: not pods, what="the reader is gone")
    until_mounted(node, "nfs", 0)
    assert node.machine.output(f"cat {nfs}/file") == "from-a-pod"


def test_an_agent_that_was_killed_finds_its_nfs_mount_again(node, nfs):
    node.start()
    node.apply(with_volume("writer", nfs_source()))
    before = node.until_running("writer")["writer"].status.container_statuses[0].container_id
    node.machine.run(f"systemctl kill -s KILL {UNIT}")
    node.until_true(f"systemctl is-active {UNIT}")
    pods = node.until_running("writer")
    assert pods["writer"].status.container_statuses[0].container_id == before
    until_mounted(node, "nfs", 1)
    node.withdraw("writer")
    node.until(lambda pods: not pods, what="no pods")
    until_mounted(node, "nfs", 0)


@pytest.mark.usefixtures("only_klet")
def test_a_pod_whose_nfs_server_is_gone_can_be_removed(node, nfs):
    node.start()
    node.apply(with_volume("stranded", nfs_source()))
    node.apply(build_pod("other"))
    node.until_running("stranded", "other")
    node.machine.run("systemctl stop nfs-server")
    node.withdraw("stranded")
    node.until(lambda pods: set(pods) == {"other"}, what="the pod without server is gone")
    until_mounted(node, "nfs", 0, patience=400)
    node.machine.run("systemctl start nfs-server")


@pytest.mark.usefixtures("only_klet")
def test_what_mount_says_of_a_server_that_does_not_answer_is_in_the_journal(node):
    node.start()
    node.apply(with_volume("waiting", {"nfs": {"server": "127.0.0.1", "path": "/nothing"}}))
    query = "http://agent/klet/v1/journal?decision=FailedMount"
    # mount.nfs tries for two minutes.
    node.until_true(
        f"curl -fsS --unix-socket /var/lib/kubelet/klet.sock '{query}' | grep 'Mounting command: mount'", patience=300
    )
    assert node.pods()["waiting"].status.phase == "Pending"
    node.withdraw("waiting")
    node.until(lambda pods: not pods, what="no pods")


def test_an_iscsi_disk_is_formatted_once_and_logged_out_of_after_the_last_pod(node, target):
    node.start(enableControllerAttachDetach=False)
    for number in (1, 2):
        command = f"echo {number} >>/v/file; exec sleep 100000"
        node.apply(with_volume("disk", iscsi_source(), command=command))
        node.until_running("disk", patience=240)
        assert target in node.machine.output("iscsiadm -m session")
        lines = node.machine.output("cat /var/lib/kubelet/pods/*/volumes/kubernetes.io~iscsi/v/file").split()
        assert lines == [str(each) for each in range(1, number + 1)]
        node.withdraw("disk")
        node.until(lambda pods: not pods, what="no pods", patience=240)
        node.until_true(f"! iscsiadm -m session && test -z \"$(find {PLACES}/iscsi -name '*-lun-*')\"", patience=240)
        until_mounted(node, "iscsi", 0)
        assert node.machine.output("ls /dev/disk/by-path/ | grep -c iscsi || true") == "0"


@pytest.mark.usefixtures("only_klet")
def test_an_agent_that_was_killed_finds_its_iscsi_disk_again(node, target):
    node.start(enableControllerAttachDetach=False)
    node.apply(with_volume("disk", iscsi_source()))
    node.until_running("disk", patience=240)
    node.machine.run(f"systemctl kill -s KILL {UNIT} && rm /etc/kubernetes/manifests/disk.json")
    node.until_true(f"systemctl is-active {UNIT}")
    node.until(lambda pods: not pods, what="no pods", patience=240)
    node.until_true(f"! iscsiadm -m session && test -z \"$(find {PLACES}/iscsi -name '*-lun-*')\"", patience=240)
    until_mounted(node, "iscsi", 0)
