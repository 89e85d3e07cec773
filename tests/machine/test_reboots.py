"""The machine is rebooted, reset and loses its power under running pods; all of them come back as they should."""

import json
import random

import pytest

from klet.testing.vm.node import MANIFESTS, UNIT, build_pod

CUTS = 5
CHURN = """\
#!/bin/sh
# Pods come and go, so that the agent writes its checkpoints all the time.
number=0
while true; do
    number=$((number + 1))
    sed "s/NAME/churn-$((number % 6))/" /root/churn.json >{manifests}/churn-$((number % 6)).json.new
    mv {manifests}/churn-$((number % 6)).json.new {manifests}/churn-$((number % 6)).json
    rm -f {manifests}/churn-$(((number + 3) % 6)).json
    sleep 1
done
"""
CHURN_UNIT = """\
[Service]
ExecStart=/bin/sh /root/churn.sh
"""


def records(node, decision: str) -> list[dict]:
    query = f"http://agent/klet/v1/journal?decision={decision}"
    text = node.machine.output(f"curl -fsS --unix-socket /var/lib/kubelet/klet.sock '{query}'")
    return [found for line in text.splitlines() if (found := json.loads(line))["decision"] == decision]


def restarts(pod) -> int:
    return pod.status.container_statuses[0].restart_count


@pytest.fixture
def workload(node):
    """Pods of every restart policy, with data on disk and in memory; the agent starts at boot."""
    node.machine.run(f"systemctl enable -q {UNIT}")
    node.start()
    count = "echo boot >>/disk/boots; echo boot >>/memory/boots; exec sleep 100000"
    mounts = [{"name": "disk", "mountPath": "/disk"}, {"name": "memory", "mountPath": "/memory"}]
    always = build_pod("always", command=count, volumeMounts=mounts)
    always["spec"]["volumes"] = [{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]
    always["spec"]["initContainers"] = [{**always["spec"]["containers"][0], "name": "first", "command": ["true"]}]
    never, failing, done = build_pod("never"), build_pod("onfailure"), build_pod("done", command="exit 0")
    never["spec"]["restartPolicy"] = done["spec"]["restartPolicy"] = "Never"
    failing["spec"]["restartPolicy"] = "OnFailure"
    for pod in (always, never, failing, done):
        node.apply(pod)
    node.until_running("always", "never", "onfailure")
    node.until(lambda pods: pods["done"].status.phase == "Succeeded", what="done succeeded")
    yield node
    node.machine.run(f"systemctl disable -q {UNIT}")


def lines_in(node, pod, volume: str) -> int:
    path = f"/var/lib/kubelet/pods/{pod.metadata.uid}/volumes/kubernetes.io~empty-dir/{volume}/boots"
    return len(node.machine.output(f"cat {path}").splitlines())


def check_workload(node) -> None:
    """Everything came back, as upstream brings it back."""
    node.until(lambda pods: set(pods) == {"always", "never", "onfailure", "done"}, what="the pods")
    pods = node.until_running("always", "onfailure", restarts=1)
    node.until(lambda pods: pods["never"].status.phase == "Failed", what="never failed")
    assert pods["done"].status.phase == "Succeeded"
    assert pods["always"].status.phase == "Running"
    assert restarts(node.pods()["never"]) == 0
    assert lines_in(node, pods["always"], "disk") == 2
    assert lines_in(node, pods["always"], "memory") == 1


def test_a_clean_reboot_brings_every_pod_back(workload, agent):
    node = workload
    node.machine.reboot()
    node.until_true(f"systemctl is-active {UNIT}")
    check_workload(node)
    if agent == "klet":
        [reboot] = records(node, "NodeRebooted")
        assert reboot["measurements"]["agentWasStopped"] is True
        explained = node.machine.output("/opt/klet/bin/klet explain --state-dir /var/lib/kubelet always")
        assert "NodeRebooted" in explained


@pytest.mark.dozen
def test_a_hard_reset_brings_every_pod_back(workload, agent):
    node = workload
    # What a user wrote some time ago is on the disk.
    node.machine.run("sync")
    node.machine.reset()
    node.until_true(f"systemctl is-active {UNIT}")
    check_workload(node)
    if agent == "klet":
        reboot = records(node, "NodeRebooted")[-1]
        assert reboot["measurements"]["agentWasStopped"] is False


def what_containerd_has(node) -> str:
    command = (
        "ctr -n k8s.io containers ls; find /var/log/pods; journalctl -b -u containerd -o cat --no-pager | tail -n 40"
    )
    return f"{node.machine.output(command)}\n{node.log()}"


@pytest.mark.deadline(3600)
@pytest.mark.usefixtures("only_klet")
def test_power_cuts_while_checkpoints_are_written_lose_nothing(workload):
    node, chance = workload, random.Random(17)
    machine = node.machine
    steady = build_pod("steady")
    node.apply(steady)
    machine.write("/root/churn.json", json.dumps(build_pod("NAME")))
    machine.write("/root/churn.sh", CHURN.format(manifests=MANIFESTS))
    machine.write("/etc/systemd/system/churn.service", CHURN_UNIT)
    machine.run("systemctl daemon-reload")
    before = restarts(node.until_running("steady")["steady"])
    for cut in range(1, CUTS + 1):
        # What was written in the last seconds may be lost with the power, and the count of restarts is read from
        # containerd's records and the logs: those of pods that run for some time are on the disk, of churn nothing is.
        machine.run("sync && systemctl start churn")
        node.until(lambda pods: any(name.startswith("churn") for name in pods), what="churn")
        machine.run(f"sleep {chance.uniform(1, 6):.2f}")
        machine.cut_power()
        machine.start()
        # What libcni remembers of networks is written without a sync, and no runtime can stop a sandbox whose part of
        # it is torn. Upstream's kubelet waits in the same way for an administrator who does this.
        machine.run("grep -L cniVersion /var/lib/cni/results/* | xargs -r rm")
        node.until_true(f"systemctl is-active {UNIT}")
        found = node.until_running("steady", "always")["steady"]
        assert restarts(found) == before + cut, what_containerd_has(node)
        assert (
            machine.output("find /var/lib/kubelet -name '*.corrupt*' -o -name '*.damaged*' -o -name '*.aside*'") == ""
        )
        assert len(records(node, "NodeRebooted")) >= cut
    machine.run(f"rm -f {MANIFESTS}/churn*")
    node.until(lambda pods: not any(name.startswith("churn") for name in pods), what="no churn")
    # Nothing of pods that are gone is left, whatever was cut in the middle.
    uids = {pod.metadata.uid for pod in node.pods().values()}
    node.until_true(f"test \"$(ls /var/lib/kubelet/pods | sort | tr '\\n' ' ')\" = '{' '.join(sorted(uids))} '")
    slices = machine.output("systemctl list-units --no-legend --plain --type=slice 'kubepods*pod*' | cut -d' ' -f1")
    assert all(any(uid in name for uid in uids) for name in slices.split())
