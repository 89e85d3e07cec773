"""klet joins with a bootstrap token: its certificates are approved and signed by upstream's controllers."""

import asyncio
import json
import os
import signal
import ssl
from datetime import timedelta

import pytest
import pytest_asyncio

from klet.api.certificates import CertificateSigningRequest
from klet.api.node import Node
from klet.testing.control_plane.cluster import Roles, run_control_plane
from klet.testing.control_plane.default_objects import allow_bootstrap, create_default_objects
from klet.testing.control_plane.programs import CONTROLLERS, KUBECTL, why_impossible

TOKEN = "abcdef.0123456789abcdef"
SIGNERS = "certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller"
SERVING = "kubernetes.io/kubelet-serving"
CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
PATIENCE = timedelta(seconds=60)
FLAGS = ("--klet-leave-kernel-tunables",)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(tmp_path_factory):
    """One with the controllers that approve and sign."""
    if reason := why_impossible(KUBECTL, CONTROLLERS):
        pytest.skip(reason)
    async with run_control_plane(tmp_path_factory.mktemp("signing-plane"), Roles(controllers=SIGNERS)) as plane:
        async with plane.client() as client:
            await create_default_objects(client, plane.identities.authority.read_text())
            await allow_bootstrap(client, TOKEN)
        yield plane


@pytest.fixture
def flags(node, control_plane):
    """What an agent needs that has a token and nothing else."""
    bootstrap = control_plane.identities.write_kubeconfig("bootstrap", {"token": TOKEN})
    files = {
        "bootstrap-kubeconfig": bootstrap,
        "kubeconfig": node.directory / "kubelet.conf",
        "cert-dir": node.directory / "pki",
    }
    return tuple(f"--{name}={path}" for name, path in files.items())


@pytest.fixture
def joining(node, flags):
    """klet as it joins; it is not started."""
    return lambda **settings: node.klet(*FLAGS, *flags, **settings)


async def until_new(api, node, agent):
    """The node registers again and is ready."""
    old = await api.client.get(Node, node.name)
    await api.client.delete(Node, node.name)
    async with node.running(agent):
        await api.until_node(
            node.name,
            lambda found: is_ready(found) and found.metadata.uid != old.metadata.uid,
            what=f"Ready; the agent says: {agent.log}",
        )


async def requests_of(api, signer):
    listed = await api.client.list(CertificateSigningRequest)
    return [each for each in listed.items if each.spec.signer_name == signer]


async def served_names(address, port, authority):
    """The names in the certificate of the kubelet API; nothing while there is none."""
    context = ssl.create_default_context(cafile=authority)
    try:
        _, writer = await asyncio.open_connection(address, port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return ()
    found = writer.get_extra_info("ssl_object").getpeercert()["subjectAltName"]
    writer.close()
    return found


def is_ready(node):
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)


async def test_a_token_makes_a_node_with_requested_certificates(api, node, joining, control_plane):
    settings = {"rotateCertificates": True, "serverTLSBootstrap": True}
    async with node.running(joining(**settings)) as agent:
        ready = await api.until_node(node.name, is_ready, what=f"Ready; the agent says: {agent.log}")
        (client,) = await requests_of(api, CLIENT)
        assert client.spec.username == "system:bootstrap:abcdef"
        assert client.status.conditions[0].reason == "AutoApproved"
        serving = (await api.until(lambda: requests_of(api, SERVING), bool))[0]
        assert serving.spec.username == f"system:node:{node.name}"
        address = next(each.address for each in ready.status.addresses if each.type == "InternalIP")
        authority = control_plane.identities.authority
        assert await served_names(address, node.port, authority) == ()
        await api.kubectl("certificate", "approve", serving.metadata.name)
        names = await api.until(lambda: served_names(address, node.port, authority), bool, patience=PATIENCE)
        assert ("IP Address", address) in names
        assert ("DNS", node.name) in names
    current = node.directory / "pki" / "kubelet-client-current.pem"
    assert current.is_symlink()
    async with node.running(joining(**settings)) as agent:
        # It comes back with what it has, and asks for nothing.
        names = await api.until(lambda: served_names(address, node.port, authority), bool, patience=PATIENCE)
        assert ("IP Address", address) in names
        assert len(await requests_of(api, CLIENT)) == 1, agent.log
        assert len(await requests_of(api, SERVING)) == 1, agent.log


async def test_upstreams_kubelet_goes_on_with_the_certificates_of_klet(api, node, flags, upstream_kubelet):
    before = await requests_of(api, CLIENT)
    await until_new(api, node, node.upstream(*flags, rotateCertificates=True, serverTLSBootstrap=True))
    assert await requests_of(api, CLIENT) == before


async def test_klet_goes_on_with_the_certificates_of_upstreams_kubelet(api, node, flags, joining, upstream_kubelet):
    forget(node)
    await until_new(api, node, node.upstream(*flags, rotateCertificates=True))
    before = await requests_of(api, CLIENT)
    await until_new(api, node, joining(rotateCertificates=True))
    assert await requests_of(api, CLIENT) == before


async def test_without_rotation_the_node_waits_for_its_certificate(api, node, joining):
    forget(node)
    await until_new(api, node, joining())
    assert any(each.metadata.name.startswith("node-csr-") for each in await requests_of(api, CLIENT))
    current = node.directory / "pki" / "kubelet-client-current.pem"
    assert str(current) in (node.directory / "kubelet.conf").read_text()
    assert not (node.directory / "pki" / "kubelet-client.key.tmp").exists()


def forget(node):
    """The node has no certificates any more."""
    for path in (node.directory / "pki").iterdir():
        path.unlink()
    (node.directory / "kubelet.conf").unlink()


async def test_a_node_that_waits_for_its_certificate_is_stopped_by_control_c(node, control_plane):
    config = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    bootstrap = node.directory / "nobody.conf"
    bootstrap.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": config}],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    files = {
        "bootstrap-kubeconfig": bootstrap,
        "kubeconfig": node.directory / "none.conf",
        "cert-dir": node.directory / "new",
    }
    agent = node.klet(*FLAGS, *(f"--{name}={path}" for name, path in files.items()))
    async with node.running(agent), asyncio.timeout(PATIENCE.total_seconds()):
        while "Waiting for the API server" not in agent.log:
            await control_plane.clock.sleep(timedelta(milliseconds=50))
        os.kill(agent.pid, signal.SIGINT)
        while agent.is_running:
            await control_plane.clock.sleep(timedelta(milliseconds=50))
        assert "Traceback" not in agent.log[agent.log.rindex("Waiting for the API server") :]
