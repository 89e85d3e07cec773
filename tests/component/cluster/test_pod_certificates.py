"""Certificates of pods: requested, shown, renewed, refused and forgotten by a node of a cluster."""

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from klet.aio.clock import SystemClock
from klet.api.certificates import PodCertificateRequest
from klet.api.codec import encode
from klet.api.config import ServiceAccount
from klet.api.event import Event
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.certs.child.loading import public_bytes
from klet.embedded.store import Key
from klet.kube.informer import Informer, InformerSettings
from klet.kube.watch import WatchScope
from klet.testing.pod_signer import PodSigner, Refuse, Sign, in_turn

SIGNER = "example.com/pods"
LATE = Sign(lifetime=timedelta(days=1), refresh_after=timedelta(hours=-1))
"""One that has to be renewed at once."""
FOREVER = Sign(lifetime=timedelta(days=7), refresh_after=timedelta(days=6))
SOURCE = {"signerName": SIGNER, "keyType": "ECDSAP256", "maxExpirationSeconds": 7200,
          "userAnnotations": {"example.com/team": "a"}}  # fmt: skip
WHOLE = {**SOURCE, "credentialBundlePath": "bundle.pem"}
APART = {**SOURCE, "keyPath": "key.pem", "certificateChainPath": "chain.pem"}


def volume(*sources, **fields):
    return {"name": "v", "projected": {"sources": [{"podCertificate": each} for each in sources], **fields}}


class Signing:
    """A signer beside the node, and what it has seen."""

    def __init__(self, cluster, decide):
        clock = SystemClock()
        settings = InformerSettings(cluster.client, cluster.watcher, clock, random.Random(1))
        self.requests = Informer(struct=PodCertificateRequest, scope=WatchScope(), settings=settings)
        self.signer = PodSigner(
            name=SIGNER,
            client=cluster.client,
            requests=self.requests,
            clock=clock,
            decide=decide or (lambda _: FOREVER),
        )

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in (self.requests, self.signer)]
            yield self
            for task in tasks:
                task.cancel()


@pytest.fixture
def signing(cluster):
    return lambda decide=None: Signing(cluster, decide).running()


async def bind(node, *sources, **fields):
    return await node.bind(volumes=[volume(*sources, **fields)], serviceAccountName="default")


async def until_running(node):
    pod = await node.until_running()
    return pod, node.volume(pod, "projected")


async def test_a_pod_reads_its_certificate(node, signing):
    async with signing() as signed, node.run():
        await bind(node, WHOLE, APART)
        pod, files = await until_running(node)
        bundle, key, chain = ((files / name).read_text() for name in ("bundle.pem", "key.pem", "chain.pem"))
        requests = signed.requests.all()
        this_node = await node.cluster.client.get(Node, "node")
        account = await node.cluster.client.get(ServiceAccount, "default", "default")
        metrics = node.metrics.write().decode().splitlines()
    assert f'kubelet_podcertificate_states{{signer_name="{SIGNER}",state="fresh"}} 2' in metrics
    first, second = signed.signer.issued
    assert {chain, bundle[bundle.index("-----BEGIN CERTIFICATE-----") :]} == {first, second}
    for private, certificate in ((key, chain), (bundle, bundle)):
        leaf = x509.load_pem_x509_certificate(certificate.encode())
        assert public_bytes(load_pem_private_key(private.encode(), None).public_key()) == public_bytes(
            leaf.public_key()
        )
    assert len(requests) == 2
    for request in requests:
        assert request.metadata.generate_name == "req-"
        [owner] = request.metadata.owner_references
        assert (owner.api_version, owner.kind, owner.name, owner.uid) == ("core/v1", "Pod", "p", pod.metadata.uid)
        spec = request.spec
        assert (spec.signer_name, spec.max_expiration_seconds) == (SIGNER, 7200)
        assert (spec.pod_name, spec.pod_uid) == ("p", pod.metadata.uid)
        assert (spec.service_account_name, spec.service_account_uid) == ("default", account.metadata.uid)
        assert (spec.node_name, spec.node_uid) == ("node", this_node.metadata.uid)
        assert spec.unverified_user_annotations == {"example.com/team": "a"}


async def test_files_are_in_memory_and_for_the_user_of_the_pod(node, signing):
    async with signing(), node.run():
        spec = {"securityContext": {"runAsUser": 1234}, "serviceAccountName": "default"}
        await node.bind(volumes=[volume(WHOLE, defaultMode=0o444)], **spec)
        _, files = await until_running(node)
        assert node.mounts.mounts[files][1] == "tmpfs"
        assert (files / "bundle.pem").stat().st_mode & 0o777 == 0o600


async def test_a_certificate_is_renewed_without_the_pod_noticing(node, signing):
    async with signing(in_turn(LATE, FOREVER)) as signed, node.run():
        await bind(node, APART)
        _, files = await until_running(node)
        with signed.requests.changes() as changes:
            async with asyncio.timeout(30):
                while len(signed.signer.issued) < 2:
                    await changes.get()
        await node.until_shown(files / "chain.pem", signed.signer.issued[1])
        leaf = x509.load_pem_x509_certificate((files / "chain.pem").read_bytes())
        key = load_pem_private_key((files / "key.pem").read_bytes(), None)
        assert public_bytes(key.public_key()) == public_bytes(leaf.public_key())
        [container] = node.machine.runtime.containers()
        assert container.config.metadata.attempt == 0


async def first_event(cluster, reason):
    settings = InformerSettings(cluster.client, cluster.watcher, SystemClock(), random.Random(1))
    events = Informer(struct=Event, scope=WatchScope("default"), settings=settings)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(events.run())
        with events.changes() as changes:
            while not (found := [each for each in events.all() if each.reason == reason]):
                await changes.get()
        task.cancel()
    return found[0]


async def until_told(node, decision, text):
    """Wait until a message of a decision has a text."""
    journal = node.machine.journal
    with journal.follow() as news:
        async with asyncio.timeout(30):
            while not any(c.finding.decision == decision and text in c.finding.message for c in journal.all()):
                await news.get()


@pytest.mark.parametrize(
    ("refusal", "what"),
    [
        pytest.param(Refuse("Denied", "NotWanted", "no such pod"), "was denied", id="denied"),
        pytest.param(Refuse("Failed", "Broken", "no key"), "failed", id="failed"),
    ],
)
async def test_a_refusal_is_final_and_told(node, cluster, signing, refusal, what):
    async with signing(lambda _: refusal) as signed, node.run():
        await bind(node, WHOLE)
        why = f'reason="{refusal.reason}" message="{refusal.message}"'
        ended = f"PodCertificateRequest was permanently {refusal.condition.lower()}: {why}"
        await until_told(node, "FailedMount", f'MountVolume.SetUp failed for volume "v" : {ended}')
        event = await first_event(cluster, refusal.condition)
        [request] = signed.requests.all()
    said = f'{what}, reason="{refusal.reason}", message="{refusal.message}"'
    name = f"default/{request.metadata.name}"
    assert event.message == f"PodCertificateRequest {name} {said}"
    assert (event.type, event.involved_object.name) == ("Warning", "p")


async def test_a_service_account_that_comes_late(node, cluster, signing):
    async with signing(), node.run():
        await node.bind(volumes=[volume(WHOLE)], serviceAccountName="late")
        await until_told(
            node, "CertificateNotRenewed", 'while fetching service account: serviceaccounts "late" not found'
        )
        await until_told(node, "FailedMount", "credential bundle is not issued yet")
        await cluster.client.create(ServiceAccount(metadata=ObjectMeta(name="late")), "default")
        await node.until_running()


async def test_a_type_of_key_that_does_not_exist(node, signing):
    """The API server refuses it: it is of a newer one."""
    async with signing(), node.run():
        pod = await bind(node, WHOLE)
        key = pod_key(pod)
        stored = node.cluster.api.store.get(key)
        stored["spec"]["volumes"][0]["projected"]["sources"][0]["podCertificate"]["keyType"] = "ODD"
        stored["metadata"] |= {"name": "q", "uid": "uid-q"}
        node.cluster.api.store.put(key._replace(name="q"), stored)
        why = 'while creating initial PodCertificateRequest: while generating keypair: unknown key type "ODD"'
        await until_told(node, "CertificateNotRenewed", why)


def pod_key(pod):
    return Key("pods", pod.metadata.namespace, pod.metadata.name)


async def test_keys_are_nowhere_but_in_the_volume(node, signing, caplog):
    caplog.set_level("DEBUG")
    async with signing() as signed, node.run():
        await bind(node, APART)
        _, files = await until_running(node)
        secret = (files / "key.pem").read_text().splitlines()[1]
        [request] = signed.requests.all()
        assert secret.encode() not in encode(request)
        assert secret not in repr([cause.finding for cause in node.machine.journal.all()])
        assert secret not in caplog.text
        others = [path for path in node.root.rglob("*") if path.is_file() and files not in path.parents]
        assert [path for path in others if secret.encode() in path.read_bytes()] == []


async def test_a_pod_that_is_gone_is_forgotten(node, cluster, signing):
    async with signing(in_turn(FOREVER)) as signed, node.run():
        await bind(node, WHOLE)
        await node.until_running()
        await cluster.client.delete(type(await node.until_running()), "p", "default", grace=0)
        await node.until(lambda pod: pod is None)
        await node.reported("PodRemoved")
        await bind(node, WHOLE)
        again = await node.until_running()
        uids = [each.spec.pod_uid for each in signed.requests.all()]
    assert len(uids) == 2
    assert again.metadata.uid in uids


async def test_without_the_gate_nothing_is_requested(node, signing):
    node.has_pod_certificates = False
    async with signing() as signed, node.run():
        await bind(node, WHOLE)
        await until_told(node, "FailedMount", "the gate PodCertificateRequest is off")
        assert signed.requests.all() == ()
