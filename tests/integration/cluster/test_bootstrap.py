"""A node that joins with a bootstrap token, as under kubeadm: its certificates come from the cluster."""

import pytest

from klet.api.certificates import CertificateSigningRequest
from klet.kube.kubeconfig import load_kubeconfig
from klet.testing.control_plane.cluster import prepare_controllers
from klet.testing.control_plane.furniture import allow_bootstrap
from klet.testing.control_plane.programs import CONTROLLERS, missing_programs

TOKEN = "abcdef.0123456789abcdef"
SIGNERS = "certificatesigningrequest-signing-controller,certificatesigningrequest-approving-controller"
SERVING = "kubernetes.io/kubelet-serving"


@pytest.fixture
async def signing(control_plane, tmp_path):
    """A kube-controller-manager that approves and signs what kubeadm's clusters approve and sign by themselves."""
    if missing_programs((CONTROLLERS,)):
        pytest.skip(f"skipped: no {CONTROLLERS}")
    async with control_plane.client() as client:
        await allow_bootstrap(client, TOKEN)
    controllers = prepare_controllers(tmp_path, control_plane.identities, SIGNERS, clock=control_plane.clock)
    controllers.start()
    yield controllers
    await controllers.stop()


async def requests(api, signer: str) -> list[CertificateSigningRequest]:
    listed = await api.client.list(CertificateSigningRequest)
    return [each for each in listed.items if each.spec.signer_name == signer]


async def logs(api) -> str:
    """What the pod has said; nothing while nobody is served."""
    try:
        return await api.kubectl("logs", "said")
    except AssertionError:
        return ""


async def test_a_token_becomes_a_node(signing, api, node, manifest, control_plane, agent_flags):
    bootstrap = control_plane.identities.write_kubeconfig("bootstrap", {"token": TOKEN})
    kubeconfig = node.directory / "kubelet.conf"
    certificates = node.directory / "pki"
    node.flags = (f"--bootstrap-kubeconfig={bootstrap}", f"--kubeconfig={kubeconfig}", f"--cert-dir={certificates}")
    agent = node.klet(*agent_flags, rotateCertificates=True, serverTLSBootstrap=True)
    async with node.running(agent):
        await api.until_node(
            node.name,
            lambda found: any(each.type == "Ready" and each.status == "True" for each in found.status.conditions),
            what="Ready",
        )
        (request,) = await requests(api, "kubernetes.io/kube-apiserver-client-kubelet")
        assert request.spec.username == "system:bootstrap:abcdef"
        current = certificates / "kubelet-client-current.pem"
        assert current.is_symlink()
        assert load_kubeconfig(kubeconfig).login.pair.certificate.path == current

        await api.create(manifest("said", main="echo hello; sleep 1000"), node=node.name)
        await api.until_pod("said", lambda pod: pod.status.phase == "Running", what="Running")
        # Nobody approves a serving certificate by himself: until an administrator does, nobody is served.
        (serving,) = await api.until(lambda: requests(api, SERVING), bool)
        assert serving.spec.username == f"system:node:{node.name}"
        with pytest.raises(AssertionError, match="tls"):
            await api.kubectl("logs", "said")
        await api.kubectl("certificate", "approve", serving.metadata.name)
        assert await api.until(lambda: logs(api), bool) == "hello\n"
        assert (certificates / "kubelet-server-current.pem").is_symlink()
    assert control_plane.refused("system:bootstrap:abcdef") == []

    # The next life has what it needs: no bootstrap, no new request.
    bootstrap.unlink()
    async with node.running(agent):
        assert await api.until(lambda: logs(api), bool) == "hello\n"
    assert len(await requests(api, "kubernetes.io/kube-apiserver-client-kubelet")) == 1
    assert len(await requests(api, SERVING)) == 1
