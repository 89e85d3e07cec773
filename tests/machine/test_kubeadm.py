"""`kubeadm join` on the whole machine: kubeadm's own checks, the packaged unit with its drop-in, and the agent in it.

The control plane runs outside; a port of the machine's loopback leads to it.
"""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.host.images import BUSYBOX_IMAGE
from klet.testing.control_plane.cluster import ControlPlane, Roles, run_control_plane
from klet.testing.control_plane.programs import CONTROLLERS, KUBECTL, KUBELET, VERSION, find_program, why_impossible
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
PATIENCE = 300
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
        f"systemctl disable -q --now {UNIT}; rm -rf /usr/lib/systemd/system/{UNIT}* /usr/bin/kubelet* /usr/bin/kubeadm"
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


class Cluster:
    """A control plane outside of the machine that nodes can join with kubeadm."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._plane = plane
        self._directory = directory
        self.port = int(plane.server.rpartition(":")[2])

    async def prepare(self) -> str:
        """Do the parts of `kubeadm init` that joining needs; return the command that joins."""
        kubeadm, server = str(find_program("kubeadm")), self._plane.server.removeprefix("https://")
        config, admin = self._directory / "kubeadm.yaml", self._directory / "admin.conf"
        config.write_text(configuration(server))
        admin.write_text(await self.kubectl("config", "view", "--raw", "--flatten"))
        common = (f"--kubeconfig={admin}", f"--config={config}")
        await run(kubeadm, "init", "phase", "upload-config", "all", *common)
        await run(kubeadm, "init", "phase", "bootstrap-token", *common)
        command = await run(kubeadm, "token", "create", "--print-join-command", f"--kubeconfig={admin}")
        return command.strip()

    async def kubectl(self, *arguments: str) -> str:
        return await run(str(find_program(KUBECTL)), f"--kubeconfig={self._plane.admin}", *arguments)

    async def get(self, *arguments: str) -> dict:
        return json.loads(await self.kubectl("get", "-o", "json", "--ignore-not-found", *arguments) or "{}")

    async def until(self, *arguments: str, holds: Callable[[dict], object]) -> dict:
        """Wait until an object is as it should be; return it."""
        return await until(lambda: self.get(*arguments), holds)

    async def until_running(self, name: str, *, restarts: int = 0) -> dict:
        return await self.until("pod", name, holds=lambda pod: is_running(pod, restarts))

    async def create(self, pod: dict) -> dict:
        """Create a pod of the machine; return it once it runs."""
        await self.until("serviceaccount", "default", holds=bool)
        path = self._directory / f"{pod['metadata']['name']}.json"
        path.write_text(json.dumps(pod))
        await self.kubectl("create", "-f", str(path))
        return await self.until_running(pod["metadata"]["name"])

    async def delete(self, name: str) -> None:
        await self.kubectl("delete", "pod", name, "--wait=false")
        await self.until("pod", name, holds=lambda found: not found)


def is_running(pod: dict, restarts: int) -> bool:
    statuses = pod["status"].get("containerStatuses", ())
    return [(each["ready"], each["restartCount"]) for each in statuses] == [(True, restarts)]


def container_of(pod: dict) -> str:
    return pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")


def version_of(node: dict) -> str:
    return node["status"]["nodeInfo"]["kubeletVersion"]


@asynccontextmanager
async def cluster(directory: Path):
    if reason := why_impossible(KUBECTL, CONTROLLERS, "kubeadm"):
        pytest.skip(reason)
    async with run_control_plane(directory / "plane", Roles(controllers=CONTROLLED)) as plane:
        yield Cluster(plane, directory)


async def test_kubeadm_joins_the_machine_to_a_cluster(packaged, agent, tmp_path):
    machine = packaged
    async with cluster(tmp_path) as joined:
        command = await joined.prepare()
        with machine.forwarding(port=joined.port, to=joined.port, into_machine=False):
            said = machine.run(command, timeout=PATIENCE).output
            assert "This node has joined the cluster" in said
            node = await joined.until("node", HOST_NAME, holds=ready)
            assert ("klet" in version_of(node)) == (agent == KLET)
            assert machine.output(f"systemctl is-enabled {UNIT}") == "enabled"
            await joined.create(cluster_pod("joined"))
            await joined.delete("joined")
            await check_swap(machine, joined)


@pytest.fixture
def with_upstreams_kubelet(packaged):
    """The program of upstream's package, as a file that can be kept aside."""
    if reason := why_impossible(KUBELET):
        pytest.skip(reason)
    packaged.run(f"cp --remove-destination {PROGRAMS}/kubelet /usr/bin/kubelet")
    yield packaged
    packaged.run(f"{VENV}/bin/klet uninstall --kubelet --force", check=False, timeout=PATIENCE)


@pytest.mark.usefixtures("only_klet")
async def test_klet_takes_the_place_of_a_joined_kubelet_through_a_reboot_and_gives_it_back(
    with_upstreams_kubelet, tmp_path
):
    machine = with_upstreams_kubelet

    def klet(command: str) -> dict:
        return json.loads(machine.output(f"{VENV}/bin/klet {command} -o json 2>/dev/null", timeout=PATIENCE))

    async with cluster(tmp_path) as joined:
        command = await joined.prepare()
        with machine.forwarding(port=joined.port, to=joined.port, into_machine=False):
            machine.run(command, timeout=PATIENCE)
            await joined.until("node", HOST_NAME, holds=lambda node: ready(node) and "klet" not in version_of(node))
            first = container_of(await joined.create(cluster_pod("kept")))

            installed = klet("install --kubelet --replace")
            assert (installed["installed"], installed["ready"], installed["errors"]) == (True, True, [])
            await joined.until("node", HOST_NAME, holds=lambda node: ready(node) and "klet" in version_of(node))
            await joined.create(cluster_pod("added"))
            assert container_of(await joined.until_running("kept")) == first

        machine.reboot()
        with machine.forwarding(port=joined.port, to=joined.port, into_machine=False):
            pods = {name: await joined.until_running(name, restarts=1) for name in ("kept", "added")}
            journal = "http://agent/klet/v1/journal?decision=NodeRebooted"
            machine.run(f"curl -fsS --unix-socket /var/lib/kubelet/klet.sock '{journal}' | grep -q NodeRebooted")

            removed = klet("uninstall --kubelet")
            assert (removed["installed"], removed["errors"]) == (False, [])
            await joined.until("node", HOST_NAME, holds=lambda node: ready(node) and "klet" not in version_of(node))
            await joined.create(cluster_pod("last"))
            for name, pod in pods.items():
                assert container_of(await joined.until_running(name, restarts=1)) == container_of(pod)


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


async def check_swap(machine, joined: Cluster) -> None:
    """Burstable pods of a cluster get swap in proportion to what they request."""
    machine.run(f"fallocate -l {SWAP} /swap && chmod 600 /swap && mkswap -q /swap && swapon /swap")
    try:
        settings = "failSwapOn: false\nmemorySwap:\n  swapBehavior: LimitedSwap\n"
        machine.run(f"sed -i /^memorySwap/d {CONFIG} && cat >>{CONFIG}", data=settings.encode())
        machine.run(f"systemctl restart {UNIT}")
        requests = {"requests": {"memory": f"{REQUEST}"}, "limits": {"memory": f"{2 * REQUEST}"}}
        container = container_of(await joined.create(cluster_pod("swapping", resources=requests)))
        group = machine.output(f"systemctl show -P ControlGroup cri-containerd-{container}.scope")
        limit = int(machine.output(f"cat /sys/fs/cgroup{group}/memory.swap.max"))
        memory, swap = (
            int(machine.output(f"awk '/^{name}:/ {{print $2}}' /proc/meminfo")) * 1024
            for name in ("MemTotal", "SwapTotal")
        )
        assert abs(limit - REQUEST / memory * swap) <= PAGE
        await joined.delete("swapping")
    finally:
        machine.run("swapoff /swap && rm /swap")
