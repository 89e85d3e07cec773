"""The configuration files of a `klet up` node: safe defaults, private paths, and the kernel left alone.

The machine has other users, and the node may be removed again. KletConfiguration names a runtime class for each
runtime that the machine has.
"""

import json
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from klet.cli.node.identities import authority_files
from klet.cli.node.paths import NodeNames, NodePaths
from klet.cli.node.record import NodeRecord
from klet.config.klet import API_VERSION, KIND

PARALLEL_PULLS = 5
"""Several small images come quicker so; more would only share the same line and the same disk."""
POD_PIDS_LIMIT = 4096
RESOLV_CONF = "/etc/resolv.conf"
SYSTEMD_RESOLV_CONF = "/run/systemd/resolve/resolv.conf"
RUNC = "runc"
CRUN = "crun"


def build_kubelet_configuration(*, paths: NodePaths, names: NodeNames, record: NodeRecord, resolv_conf: str) -> str:
    """Return the file as text: JSON, which is YAML too."""
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": str(paths.manifests),
        "podLogsDir": str(paths.pod_logs),
        "containerRuntimeEndpoint": f"unix://{paths.containerd_socket}",
        "address": "127.0.0.1",
        "port": record.port,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": record.healthz_port,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority_files(paths.pki).certificate_file)},
        },
        # There is no API server to ask; who gets past authentication is the owner of the machine.
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": names.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "podPidsLimit": POD_PIDS_LIMIT,
        "protectKernelDefaults": False,
        "registerNode": False,
        # One user waits for all of them, and no registry is protected by a limit of this one node.
        "registryPullQPS": 0,
        "resolvConf": resolv_conf,
        "seccompDefault": True,
        "serializeImagePulls": False,
        "maxParallelImagePulls": PARALLEL_PULLS,
    }
    return json.dumps(configuration, indent=2) + "\n"


def choose_resolv_conf(text: str, *, has_systemd_resolv_conf: bool) -> str:
    """Return where pods get their name servers from: a stub on the host's loopback is out of their reach."""
    servers = _name_servers(text)
    if has_systemd_resolv_conf and servers and all(_is_loopback(server) for server in servers):
        return SYSTEMD_RESOLV_CONF
    return RESOLV_CONF


def _name_servers(text: str) -> Sequence[str]:
    lines = (line.split() for line in text.splitlines())
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def _is_loopback(server: str) -> bool:
    try:
        return ip_address(server.partition("%")[0]).is_loopback
    except ValueError:
        return False


def build_klet_configuration(*, handlers: Iterable[str]) -> str:
    """Return the file as text: JSON, which is YAML too. Each class has the name of its handler."""
    classes = [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": handler}, "handler": handler}
        for handler in handlers
    ]
    fields = {"apiVersion": API_VERSION, "kind": KIND, "leaveKernelTunables": True, "runtimeClasses": classes}
    return json.dumps(fields, indent=2) + "\n"
