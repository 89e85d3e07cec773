"""A node of a control plane: its directories and configuration, for klet or for the kubelet of upstream.

Both find the same directories, so that one can take over from the other.
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from klet.host.mountinfo import mounts_under, parse_mountinfo
from klet.testing.containerd import PrivateContainerd
from klet.testing.control_plane.cluster import ControlPlane
from klet.testing.control_plane.identities import node_user
from klet.testing.control_plane.processes import Daemon, free_port
from klet.testing.control_plane.programs import KUBELET, find_program
from klet.testing.leftovers import undo_mounts

STOP_PATIENCE: Final = timedelta(seconds=20)


class ClusterNode:
    """What outlives the agent on a node: directories, configuration, credentials."""

    def __init__(self, *, name: str, directory: Path, plane: ControlPlane, containerd: PrivateContainerd) -> None:
        self.name = name
        self.directory = directory
        self.root = directory / "root"
        self.manifests = directory / "manifests"
        self.logs = directory / "pod-logs"
        self.config = directory / "config.json"
        self.port = free_port()
        self.flags = (f"--kubeconfig={plane.identities.kubeconfig(*node_user(name))}",)
        self._plane = plane
        self.settings: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "port": self.port,
            "healthzPort": 0,
            "staticPodPath": str(self.manifests),
            "podLogsDir": str(self.logs),
            "containerRuntimeEndpoint": containerd.endpoint,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": containerd.cgroup_parent,
            "cgroupsPerQOS": True,
            "failCgroupV1": False,
            "failSwapOn": False,
            "maxPods": 500,
            "authentication": {"x509": {"clientCAFile": str(plane.identities.authority)}},
            # A machine for tests may be short of anything, and that is not what is tested.
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
        }

    def prepare(self) -> None:
        self.manifests.mkdir(parents=True)

    def klet(self, *flags: str, **settings: object) -> Daemon:
        """Return the agent of klet with this node's configuration; it is not started."""
        return self._daemon("klet", (sys.executable, "-P", "-m", "klet", "run"), flags, settings)

    def killed_klet(self, number: int, *flags: str) -> Daemon:
        """Return an agent that is killed before its change of that number to files and mounts of volumes."""
        below = os.pathsep.join(str(self.root / name) for name in ("pods", "plugins"))
        program = (sys.executable, "-P", "-m", "klet.testing.killed_agent", str(number), below, "run")
        return self._daemon("klet", program, flags, {})

    def upstream(self, *flags: str, **settings: object) -> Daemon:
        """Return upstream's kubelet with this node's configuration."""
        _make_cgroups(str(self.settings["cgroupRoot"]))
        return self._daemon("kubelet", (str(find_program(KUBELET)),), flags, settings)

    @asynccontextmanager
    async def running(self, agent: Daemon) -> AsyncIterator[Daemon]:
        """Run the agent until the block is left, or until it is stopped there."""
        agent.start()
        try:
            yield agent
        finally:
            await agent.stop(patience=STOP_PATIENCE)

    def write(self, name: str, manifest: dict[str, Any]) -> None:
        """Put a static pod in place in one step."""
        temporary = self.manifests / f".{name}"
        temporary.write_text(json.dumps(manifest))
        temporary.rename(self.manifests / f"{name}.yaml")

    def mounts(self) -> list[str]:
        """Return what is mounted below the node's directory, but for its root directory, which is bound on itself."""
        table = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
        found = [mount.mount_point for mount in mounts_under(table, str(self.directory))]
        return [path for path in found if path != str(self.root)]

    def unmount_all(self) -> None:
        undo_mounts(self.directory)

    def _daemon(
        self, name: str, program: tuple[str, ...], flags: tuple[str, ...], settings: dict[str, object]
    ) -> Daemon:
        self.config.write_text(json.dumps(self.settings | settings))
        command = (
            *program,
            f"--config={self.config}",
            f"--root-dir={self.root}",
            f"--cert-dir={self.directory / 'pki'}",
            f"--hostname-override={self.name}",
            *self.flags,
            *flags,
        )
        return Daemon(command=command, log=self.directory / f"{name}.log", clock=self._plane.clock)


def _make_cgroups(name: str) -> None:
    """Make the root cgroup: upstream's kubelet makes only what is below it."""
    hierarchies = [path for path in Path("/sys/fs/cgroup").iterdir() if (path / "cgroup.procs").exists()]
    for hierarchy in hierarchies or [Path("/sys/fs/cgroup")]:
        (hierarchy / name.strip("/")).mkdir(exist_ok=True)
