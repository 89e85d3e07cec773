"""`kubeadm join` on the whole machine: kubeadm's own checks, the packaged unit with its drop-in, and the agent in it.

The control plane runs outside; a port of the machine's loopback leads to it.
"""

import asyncio
import json
import os
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.host.images import BUSYBOX_IMAGE
from klet.testing.control_plane.cluster import Roles, run_control_plane
from klet.testing.control_plane.programs import CONTROLLERS, KUBECTL, VERSION, find_program, why_impossible
from klet.testing.vm.debian import HOST_NAME, PROGRAMS, VENV
from klet.testing.vm.node import CONFIG, KLET, MANIFESTS, UNIT

CONTROLLED = (
    "certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,"
    "bootstrap-signer-controller,serviceaccount-controller,root-ca-certificate-publisher-controller"
)
PACKAGED_UNIT = """\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
KUBECONFIGS = "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
PACKAGED_DROP_IN = f"""\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS={KUBECONFIGS}"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
PATIENCE = 240
SWAP, REQUEST, PAGE = 256 << 20, 256 << 20, 4096
POLL = timedelta(milliseconds=500)


@pytest.fixture
def packaged(machine, agent, installed):
    """The machine after `apt-get install kubelet kubeadm`, with nothing of another node on it."""
    installed.stop()
    program = f"{VENV}/bin/kubelet" if agent == KLET else f"{PROGRAMS}/kubelet"
    clean = f"systemctl stop {UNIT} || true; rm -rf /etc/kubernetes /var/lib/kubelet /etc/default/kubelet"
    machine.run(f"{clean}; mkdir -p {MANIFESTS}; ln -sfn {program} /usr/bin/kubelet")
    machine.run(f"ln -sfn {PROGRAMS}/kubeadm /usr/bin/kubeadm")
    machine.write(f"/usr/lib/systemd/system/{UNIT}", PACKAGED_UNIT)
    machine.write(f"/usr/lib/systemd/system/{UNIT}.d/10-kubeadm.conf", PACKAGED_DROP_IN)
    machine.run(f"systemctl daemon-reload && systemctl enable -q {UNIT}")
    yield machine
    machine.run("kubeadm reset --force", check=False)
    machine.run(
        f"systemctl disable -q --now {UNIT}; rm -rf /usr/lib/systemd/system/{UNIT}* /usr/bin/kubelet /usr/bin/kubeadm"
    )
    machine.run(f"{clean}; systemctl daemon-reload")
    installed.install()


async def run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=os.environ
    )
    async with asyncio.timeout(PATIENCE):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def until(read, holds):
    """What is read once it is so; fails after a while."""
    clock = SystemClock()
    async with asyncio.timeout(PATIENCE):
        while not holds(found := await read()):
            await clock.sleep(POLL)
    return found


def configuration(server: str) -> str:
    """What `kubeadm init` would be given."""
    cluster = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "kubernetesVersion": VERSION,
        "controlPlaneEndpoint": server,
    }
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
    }
    return f"{json.dumps(cluster)}\n---\n{json.dumps(kubelet)}\n"


def ready(node: dict) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def test_kubeadm_joins_the_machine_to_a_cluster(packaged, agent, tmp_path):
    if reason := why_impossible(KUBECTL, CONTROLLERS, "kubeadm"):
        pytest.skip(reason)
    machine, kubeadm = packaged, str(find_program("kubeadm"))
    async with run_control_plane(tmp_path / "plane", Roles(controllers=CONTROLLED)) as plane:
        server = plane.server.removeprefix("https://")
        port = int(server.rpartition(":")[2])

        async def kubectl(*arguments: str) -> str:
            return await run(str(find_program(KUBECTL)), f"--kubeconfig={plane.admin}", *arguments)

        async def get(*arguments: str) -> dict:
            return json.loads(await kubectl("get", "-o", "json", "--ignore-not-found", *arguments) or "{}")

        config, admin = tmp_path / "kubeadm.yaml", tmp_path / "admin.conf"
        config.write_text(configuration(server))
        admin.write_text(await kubectl("config", "view", "--raw", "--flatten"))
        common = (f"--kubeconfig={admin}", f"--config={config}")
        await run(kubeadm, "init", "phase", "upload-config", "all", *common)
        await run(kubeadm, "init", "phase", "bootstrap-token", *common)
        command = await run(kubeadm, "token", "create", "--print-join-command", f"--kubeconfig={admin}")
        with machine.forwarding(port=port, to=port, into_machine=False):
            said = machine.run(command.strip(), timeout=PATIENCE).output
            assert "This node has joined the cluster" in said
            node = await until(lambda: get("node", HOST_NAME), ready)
            assert ("klet" in node["status"]["nodeInfo"]["kubeletVersion"]) == (agent == KLET)
            assert machine.output(f"systemctl is-enabled {UNIT}") == "enabled"
            await until(lambda: get("serviceaccount", "default"), bool)
            await check_pod(machine, kubectl, get, tmp_path)
            await check_swap(machine, kubectl, get, tmp_path)


def cluster_pod(name: str, **container: object) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": HOST_NAME,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": BUSYBOX_IMAGE, "command": ["sleep", "100000"], **container}],
        },
    }


async def create_running(pod: dict, kubectl, get, tmp_path) -> dict:
    name = pod["metadata"]["name"]
    (tmp_path / f"{name}.json").write_text(json.dumps(pod))
    await kubectl("create", "-f", str(tmp_path / f"{name}.json"))
    return await until(lambda: get("pod", name), lambda found: found["status"].get("phase") == "Running")


async def delete(name: str, kubectl, get) -> None:
    await kubectl("delete", "pod", name, "--wait=false")
    await until(lambda: get("pod", name), lambda found: not found)


async def check_pod(machine, kubectl, get, tmp_path) -> None:
    await create_running(cluster_pod("joined"), kubectl, get, tmp_path)
    await delete("joined", kubectl, get)


async def check_swap(machine, kubectl, get, tmp_path) -> None:
    """Burstable pods of a cluster get swap in proportion to what they request."""
    machine.run(f"fallocate -l {SWAP} /swap && chmod 600 /swap && mkswap -q /swap && swapon /swap")
    try:
        settings = "failSwapOn: false\nmemorySwap:\n  swapBehavior: LimitedSwap\n"
        machine.run(f"sed -i /^memorySwap/d {CONFIG} && cat >>{CONFIG}", data=settings.encode())
        machine.run(f"systemctl restart {UNIT}")
        requests = {"requests": {"memory": f"{REQUEST}"}, "limits": {"memory": f"{2 * REQUEST}"}}
        pod = await create_running(cluster_pod("swapping", resources=requests), kubectl, get, tmp_path)
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        group = machine.output(f"systemctl show -P ControlGroup cri-containerd-{container}.scope")
        limit = int(machine.output(f"cat /sys/fs/cgroup{group}/memory.swap.max"))
        memory, swap = (
            int(machine.output(f"awk '/^{name}:/ {{print $2}}' /proc/meminfo")) * 1024
            for name in ("MemTotal", "SwapTotal")
        )
        assert abs(limit - REQUEST / memory * swap) <= PAGE
        await delete("swapping", kubectl, get)
    finally:
        machine.run("swapoff /swap && rm /swap")
