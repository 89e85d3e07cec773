"""metrics-server scrapes the node, and `kubectl top` shows what it found: of upstream's kubelet and of klet."""

import json
from datetime import timedelta

import pytest
import pytest_asyncio

from klet.aio.clock import SystemClock
from klet.testing.control_plane.cluster import Roles, run_control_plane
from klet.testing.control_plane.default_objects import create_default_objects
from klet.testing.control_plane.identities import ADMINS, ControlPlaneIdentities
from klet.testing.control_plane.processes import Daemon, free_port
from klet.testing.control_plane.programs import KUBECTL, METRICS_SERVER, find_program, missing_programs, why_impossible

GROUP = "v1beta1.metrics.k8s.io"
BURN = "while true; do :; done"
PATIENCE = timedelta(seconds=120)


def proxy_flags(directory, clock):
    """What lets kube-apiserver hand requests on to other API servers: an authority for its own identity there."""
    identities = ControlPlaneIdentities(directory=directory, server="", clock=clock)
    identities.prepare()
    certificate, key = identities.client("front-proxy-client")
    return (
        f"--requestheader-client-ca-file={identities.authority}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(tmp_path_factory):
    """One that hands requests on, with a metrics-server beside it."""
    if reason := why_impossible(KUBECTL):
        pytest.skip(reason)
    if missing_programs((METRICS_SERVER,)):
        pytest.skip("no metrics-server: run scripts/upstream metrics-server")
    clock, directory = SystemClock(), tmp_path_factory.mktemp("aggregating-plane")
    roles = Roles(api_server_flags=proxy_flags(directory / "proxy", clock))
    async with run_control_plane(directory / "plane", roles, clock=clock) as plane:
        async with plane.client() as client:
            await create_default_objects(client, plane.identities.authority.read_text())
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def metrics_server(control_plane, tmp_path_factory):
    """Runs with the rights of an administrator; the port that it serves on."""
    directory, port = tmp_path_factory.mktemp("metrics-server"), free_port()
    kubeconfig = control_plane.identities.kubeconfig("metrics-server", ADMINS)
    command = (
        str(find_program(METRICS_SERVER)),
        *(f"--{name}kubeconfig={kubeconfig}" for name in ("", "authentication-", "authorization-")),
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={directory}",
        "--kubelet-insecure-tls",
        "--kubelet-use-node-status-port",
        "--kubelet-preferred-address-types=InternalIP",
        "--metric-resolution=10s",
        # It must be shorter than that.
        "--kubelet-request-timeout=5s",
    )
    daemon = Daemon(command=command, log=directory / "log", clock=control_plane.clock)
    daemon.start()
    yield port
    daemon.check()
    await daemon.stop()


@pytest.fixture
async def registered(api, metrics_server):
    """The API of metrics-server, reached by a name that leads to the loopback."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "metrics-server", "namespace": "kube-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": metrics_server}]},
    }
    registration = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": GROUP},
        "spec": {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": "metrics-server", "namespace": "kube-system", "port": metrics_server},
        },
    }
    for made in (service, registration):
        await api.kubectl("apply", "-f", "-", stdin=json.dumps(made))


async def read_usage(api, path):
    """The answer of metrics-server; empty while it has none."""
    try:
        return json.loads(await api.kubectl("get", "--raw", f"/apis/metrics.k8s.io/v1beta1/{path}"))
    except AssertionError:
        return {}


@pytest.mark.parametrize("kind", ["upstream", "klet"])
async def test_top_shows_the_node_and_its_pods(api, node, registered, manifest, agent_flags, kind, request):
    if kind == "upstream":
        request.getfixturevalue("upstream_kubelet")
    agent = node.upstream() if kind == "upstream" else node.klet(*agent_flags)
    name = f"burner-{kind}"
    async with node.running(agent):
        pod = manifest(name, main=BURN, idle="sleep 100000")
        pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "100m", "memory": "32Mi"}}
        await api.create(pod, node=node.name)
        await api.until_pod(name, lambda pod: pod.status.phase == "Running", what="Running")

        async def usage():
            return await read_usage(api, f"namespaces/default/pods/{name}")

        found = await api.until(usage, lambda usage: len(usage.get("containers", ())) == 2, patience=PATIENCE)
        assert sorted(each["name"] for each in found.get("containers", ())) == ["idle", "main"]
        shown = (await api.kubectl("top", "pod", name, "--containers", "--no-headers")).split("\n")
        rows = {row.split()[1]: row.split()[2:] for row in shown if row}
        burnt = int(rows["main"][0].removesuffix("m"))
        assert 20 <= burnt <= 130
        assert int(rows["idle"][0].removesuffix("m")) <= 10
        assert all(memory.endswith("Mi") for _, memory in rows.values())
        (row,) = (await api.kubectl("top", "node", node.name, "--no-headers")).splitlines()
        assert int(row.split()[1].removesuffix("m")) >= burnt
        await api.delete(name)
        await api.until_gone(name)
