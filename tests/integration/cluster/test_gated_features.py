"""Features behind gates that are off by default, on a control plane with the same gates on: pod certificates, and
features that the node declares.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from klet.api.certificates import PodCertificateRequest
from klet.certs.child.loading import public_bytes
from klet.kube.watch import WatchScope
from klet.testing.control_plane.cluster import Roles, run_control_plane
from klet.testing.control_plane.default_objects import create_default_objects
from klet.testing.control_plane.programs import KUBECTL, VERSION, chosen_release, why_impossible
from klet.testing.pod_signer import PodSigner, Refuse, Sign

SIGNER = "example.com/pods"
RESTART_ALL = "RestartAllContainersOnContainerExits"
GATES = {"PodCertificateRequest": True, "NodeDeclaredFeatures": True, RESTART_ALL: True}
SERVER_FLAGS = (
    f"--feature-gates={','.join(f'{name}=true' for name in GATES)}",
    "--runtime-config=certificates.k8s.io/v1beta1/podcertificaterequests=true",
)
KEY_TYPES = ("ED25519", "ECDSAP256", "ECDSAP384", "ECDSAP521", "RSA3072", "RSA4096")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(tmp_path_factory):
    """One with these gates on."""
    if reason := why_impossible(KUBECTL):
        pytest.skip(reason)
    if chosen_release() != VERSION:
        pytest.skip("an API server of another release has other gates: run it with that of klet")
    roles = Roles(api_server_flags=SERVER_FLAGS)
    async with run_control_plane(tmp_path_factory.mktemp("gated-plane"), roles) as plane:
        async with plane.client() as client:
            await create_default_objects(client, plane.identities.authority.read_text())
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def agent(node, agent_flags):
    """klet with the gates on."""
    async with node.running(node.klet(*agent_flags, featureGates=GATES)) as daemon:
        yield daemon


@pytest.fixture
def signing(api):
    """A signer that runs until the block is left."""

    @asynccontextmanager
    async def run(decide):
        async with api.informer(PodCertificateRequest, WatchScope()) as requests, asyncio.TaskGroup() as group:
            signer = PodSigner(name=SIGNER, client=api.client, requests=requests, clock=api.plane.clock, decide=decide)
            task = group.create_task(signer.run())
            yield signer
            task.cancel()

    return run


def certified(manifest, name, script, *, key_type="ED25519"):
    """A pod that reads its certificate."""
    files = {"keyPath": "key.pem", "certificateChainPath": "chain.pem", "credentialBundlePath": "bundle.pem"}
    source = {"podCertificate": {"signerName": SIGNER, "keyType": key_type, **files}}
    spec = {"restartPolicy": "Never", "volumes": [{"name": "certs", "projected": {"sources": [source]}}]}
    made = manifest(name, main=script, spec=spec)
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "certs", "mountPath": "/certs"}]
    return made


@pytest.mark.parametrize("key_type", KEY_TYPES)
async def test_a_pod_reads_its_certificate(ready, api, node, manifest, signing, key_type):
    name = f"certified-{key_type.lower()}"
    script = "cat /certs/chain.pem /certs/key.pem > /dev/termination-log"
    if key_type.startswith("RSA"):
        script = "cat /certs/chain.pem > /dev/termination-log"  # a termination message has 4096 bytes
    async with signing(lambda _: Sign()) as signer:
        await api.create(certified(manifest, name, script, key_type=key_type), node=node.name)
        pod = await api.until_pod(name, lambda pod: pod.status.phase == "Succeeded", what="Succeeded")
    [issued] = signer.issued
    text = pod.status.container_statuses[0].state.terminated.message
    assert text.startswith(issued)
    leaf = x509.load_pem_x509_certificate(text.encode())
    if key := text.removeprefix(issued):
        assert public_bytes(load_pem_private_key(key.encode(), None).public_key()) == public_bytes(leaf.public_key())
    await api.delete(name)
    await api.until_gone(name)


async def test_a_signer_that_refuses(ready, api, node, manifest, signing):
    async with signing(lambda _: Refuse("Denied", "NotWanted", "not this pod")):
        await api.create(certified(manifest, "refused", "true"), node=node.name)
        denied = await api.until_event("Denied", about="refused")
        assert denied.type == "Warning"
        assert denied.message.startswith("PodCertificateRequest default/req-")
        mount = await api.until_event("FailedMount", about="refused")
        assert mount.message.startswith('MountVolume.SetUp failed for volume "certs" : ')
    await api.delete("refused")
    await api.until_gone("refused")


async def test_the_node_declares_what_it_can_do(ready, api, node):
    found = await api.until_node(node.name, lambda each: bool(each.status.declared_features), what="declaredFeatures")
    assert found.status.declared_features == (RESTART_ALL,)
