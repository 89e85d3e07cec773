"""`kubeadm join` with klet in the place of the kubelet: the files, the unit's command and the token are kubeadm's own.

kubeadm writes to /etc/kubernetes and /var/lib/kubelet: here these are directories of the test, in a mount namespace of
its own. Its systemctl is a script that does what kubeadm's unit would.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from contextlib import suppress

import pytest

from klet.testing.control_plane.cluster import Roles, run_control_plane
from klet.testing.control_plane.processes import free_port
from klet.testing.control_plane.programs import CONTROLLERS, KUBECTL, VERSION, find_program, why_impossible

CONTROLLED = (
    "certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,"
    "bootstrap-signer-controller,serviceaccount-controller,root-ca-certificate-publisher-controller"
)
SYSTEMCTL = """#!/bin/sh
case "$1" in
restart)
    . /var/lib/kubelet/kubeadm-flags.env
    . {directory}/extra.env
    {kubelet} --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \\
        --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS >{directory}/klet.log 2>&1 &
    echo $! >{directory}/klet.pid
    ;;
esac
"""
JOIN = """set -e
mount -t tmpfs tmpfs /mnt
for place in etc var/lib; do
    mkdir -p /mnt/$place/upper /mnt/$place/work
    mount -t overlay overlay -o lowerdir=/$place,upperdir=/mnt/$place/upper,workdir=/mnt/$place/work /$place
done
mkdir -p /etc/kubernetes /var/lib/kubelet
mount --bind {directory}/etc /etc/kubernetes
mount --bind {directory}/kubelet /var/lib/kubelet
export PATH={directory}/bin:$PATH
{command} --cri-socket={cri} --node-name=joined --skip-phases=preflight
wait
"""


@pytest.fixture(scope="module")
def kubeadm():
    if reason := why_impossible(KUBECTL, CONTROLLERS, "kubeadm"):
        pytest.skip(reason)
    return find_program("kubeadm")


@pytest.fixture
async def control_plane(kubeadm, tmp_path):
    async with run_control_plane(tmp_path / "plane", Roles(controllers=CONTROLLED)) as plane:
        yield plane


async def run(*command: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=os.environ | environment
    )
    async with asyncio.timeout(90):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


def configuration(plane, containerd, directory) -> str:
    """What `kubeadm init` would be given."""
    cluster = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "kubernetesVersion": VERSION,
        "controlPlaneEndpoint": plane.server.removeprefix("https://"),
    }
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": containerd.cgroup_parent,
        "failCgroupV1": False,
        "failSwapOn": False,
        "port": free_port(),
        "healthzPort": free_port(),
        "podLogsDir": str(directory / "pod-logs"),
    }
    return f"{json.dumps(cluster)}\n---\n{json.dumps(kubelet)}\n"


def prepare(directory) -> None:
    """The programs and directories of a node before it joins."""
    for name in ("etc", "kubelet", "bin", "root"):
        (directory / name).mkdir()
    kubelet = directory / "bin" / "kubelet"
    kubelet.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m klet run "$@"\n')
    systemctl = directory / "bin" / "systemctl"
    systemctl.write_text(SYSTEMCTL.format(directory=directory, kubelet=kubelet))
    (directory / "bin" / "kubeadm").symlink_to(find_program("kubeadm"))
    # The runtime is outside of the mount namespace, and has to find the files of pods.
    extra = f"--root-dir={directory / 'root'} --klet-leave-kernel-tunables"
    (directory / "extra.env").write_text(f'KUBELET_EXTRA_ARGS="{extra}"\n')
    for program in (kubelet, systemctl):
        program.chmod(0o755)


async def test_kubeadm_joins_a_node(control_plane, api, containerd, kubeadm, tmp_path, manifest):
    directory = tmp_path / "node"
    directory.mkdir()
    prepare(directory)
    config = directory / "kubeadm.yaml"
    config.write_text(configuration(control_plane, containerd, directory))
    admin = directory / "admin.conf"
    admin.write_text(await api.kubectl("config", "view", "--raw", "--flatten"))
    common = (f"--kubeconfig={admin}", f"--config={config}")
    await run(str(kubeadm), "init", "phase", "upload-config", "all", *common)
    await run(str(kubeadm), "init", "phase", "bootstrap-token", *common)
    command = await run(str(kubeadm), "token", "create", "--print-join-command", f"--kubeconfig={admin}")
    join = JOIN.format(directory=directory, command=command.strip(), cri=containerd.endpoint)
    try:
        async with asyncio.timeout(120):
            process = await asyncio.create_subprocess_exec(
                shutil.which("unshare") or "unshare",
                "--mount",
                "sh",
                "-c",
                join,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said = b""
            while b"This node has joined the cluster" not in said and (line := await process.stdout.readline()):
                said += line
        assert b"This node has joined the cluster" in said, said.decode() + (directory / "klet.log").read_text()
        await api.until_node("joined", is_ready, what="Ready")
        await api.until(lambda: account(api), bool)
        await api.create(manifest("said", main="echo hello; exec sleep 1000"), node="joined")
        await api.until_pod("said", lambda pod: pod.status.phase == "Running", what="Running")
        assert await api.kubectl("logs", "said") == "hello\n"
        await api.delete("said")
        await api.until_gone("said")
        assert control_plane.refused("system:node:joined") == []
    finally:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((directory / "klet.pid").read_text()), signal.SIGTERM)
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def account(api) -> str:
    return await api.kubectl("get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")


def is_ready(node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
