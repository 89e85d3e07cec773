"""How klet and the upstream kubelet are started: the same configuration, and only what a program needs of its own."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.process import KLET
from klet.testing.containerd import PrivateContainerd
from klet.testing.control_plane.programs import KUBELET, find_program
from klet.testing.free_ports import find_free_ports

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Program:
    """One of the two that are compared."""

    name: str
    command: Callable[[], tuple[str, ...]]


KLET_RUN = Program("klet", lambda: KLET)
UPSTREAM = Program("upstream", lambda: (str(find_program(KUBELET)),))
BOTH = (KLET_RUN, UPSTREAM)
LAUNCHED = Program("klet", lambda: (str(CHECKOUT / "klet"), *KLET[KLET.index("run") :]))
"""As users of a checkout start it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where an agent listens on the loopback."""

    api: int
    healthz: int


def write_configuration(path: Path, *, containerd: PrivateContainerd, authority: Path) -> Ports:
    """What this machine asks for (cgroup v1, its own ports and resolv.conf, a private runtime); defaults otherwise."""
    ports = Ports(*find_free_ports(2))
    resolver = path.with_name("resolv.conf")
    resolver.write_text("nameserver 127.0.0.1\n")
    path.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "podLogsDir": str(containerd.directory.parent / "logs"),
                "containerRuntimeEndpoint": containerd.endpoint,
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": containerd.cgroup_parent,
                "failCgroupV1": False,
                "failSwapOn": False,
                "oomScoreAdj": 0,
                # The most that any part starts.
                "maxPods": 300,
                # As kubeadm writes it; without, every pod is warned about.
                "clusterDNS": ["10.96.0.10"],
                "clusterDomain": "cluster.local",
                # The machine may have none, or one that a kubelet warns about.
                "resolvConf": str(resolver),
                "address": "127.0.0.1",
                "port": ports.api,
                "healthzPort": ports.healthz,
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": True},
                    "x509": {"clientCAFile": str(authority)},
                },
                "authorization": {"mode": "Webhook"},
            }
        )
    )
    return ports
