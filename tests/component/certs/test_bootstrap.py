"""The first certificate of a node: from a token, against denials, absences and kills."""

import asyncio
import base64
import os
import signal
import stat
import sys
from pathlib import Path

import pytest
import yaml

from klet.api.node import Node
from klet.certs.errors import NotIssued, SigningFailed
from klet.certs.identity import open_identity
from klet.certs.templates import build_client_template
from klet.embedded.faults import Cut, RefuseRequest
from klet.embedded.refusals import unauthorized
from klet.embedded.signer import SigningVerdict
from klet.embedded.store import Key
from klet.kube.errors import KubeconfigError

PROMPTLY = 30
TEMPLATE = build_client_template("edge-1")
BOOTSTRAP_PROGRAM = """
import asyncio, random, sys
from pathlib import Path
from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.certs.identity import CertificateTools, IdentitySettings, open_identity
from klet.certs.maker import CertificateMaker
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry

async def main(home):
    clock = SystemClock()
    tools = CertificateTools(
        registry=MetricRegistry(),
        maker=CertificateMaker(clock=clock),
        threads=Threads(limit=1),
        clock=clock,
        randomness=random.Random(1),
        recorder=MemoryJournal(clock=clock),
    )
    settings = IdentitySettings(
        node_name="edge-1",
        kubeconfig=home / "kubelet.conf",
        bootstrap_kubeconfig=home / "bootstrap-kubelet.conf",
        directory=home / "pki",
        rotates=False,
    )
    async with open_identity(settings, tools):
        print("done")

asyncio.run(main(Path(sys.argv[1])))
"""


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


async def test_a_token_becomes_a_certificate_and_a_kubeconfig(cluster, home, tools, connected):
    async with cluster.listening(), cluster.signing():
        home.write_bootstrap(cluster.server)
        async with open_identity(home.settings, tools) as identity:
            assert identity.parts == ()
            async with connected(identity.access) as (client, _):
                await client.list(Node)
        (request,) = cluster.requests()
    spec = request["spec"]
    assert request["metadata"]["name"].startswith("node-csr-")
    assert (spec["signerName"], spec["usages"]) == (
        "kubernetes.io/kube-apiserver-client-kubelet",
        ["digital signature", "client auth"],
    )
    assert spec["username"] == "system:bootstrap:abcdef"
    assert "expirationSeconds" not in spec
    (dated,) = [name for name in names(home.current.parent) if not name.endswith("current.pem")]
    assert home.current.readlink() == home.current.parent / dated
    facts = await tools.maker.describe(home.current.read_text(), key=home.current.read_text())
    assert (facts.common_name, facts.organizations) == ("system:node:edge-1", ("system:nodes",))
    assert facts.key_matches
    kubeconfig = home.settings.kubeconfig
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    authority = home.authority.files.certificate_file.read_bytes()
    assert yaml.safe_load(kubeconfig.read_text()) == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "default-cluster",
                "cluster": {
                    "server": cluster.server,
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [
            {
                "name": "default-auth",
                "user": {"client-certificate": str(home.current), "client-key": str(home.current)},
            }
        ],
        "contexts": [
            {
                "name": "default-context",
                "context": {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"},
            }
        ],
        "current-context": "default-context",
    }


async def test_a_node_that_has_its_certificate_asks_nobody(cluster, home, tools):
    async with cluster.listening(), cluster.signing():
        home.write_bootstrap(cluster.server)
        async with open_identity(home.settings, tools):
            pass
    before = home.settings.kubeconfig.read_text()
    home.settings.bootstrap_kubeconfig.unlink()
    async with open_identity(home.settings, tools) as identity:
        assert identity.access.server == cluster.server
    assert home.settings.kubeconfig.read_text() == before


@pytest.mark.parametrize(
    ("verdict", "message"),
    [
        pytest.param(
            SigningVerdict.DENY,
            "certificate signing request is denied, reason: NotWanted, message: the node is not known",
            id="a denied request",
        ),
        pytest.param(
            SigningVerdict.FAIL,
            "certificate signing request failed, reason: SignerValidationFailure, message: no",
            id="a request that cannot be signed",
        ),
    ],
)
async def test_a_refusal_ends_the_bootstrap_with_its_reason(cluster, home, tools, verdict, message):
    async with cluster.listening(), cluster.signing(decide=lambda _: verdict):
        home.write_bootstrap(cluster.server)
        with pytest.raises(NotIssued, match=message):
            async with open_identity(home.settings, tools):
                pass
    assert not home.settings.kubeconfig.exists()
    assert names(home.settings.directory) == ["kubelet-client.key.tmp"]


async def test_a_token_that_is_not_known_fails_at_once(cluster, home, tools):
    async with cluster.listening():
        cluster.api.faults.plan(RefuseRequest(unauthorized()), applies=lambda ask: ask.method == "POST", times=2)
        home.write_bootstrap(cluster.server)
        with pytest.raises(SigningFailed, match="cannot create certificate signing request: Unauthorized"):
            async with open_identity(home.settings, tools):
                pass


async def test_a_bootstrap_kubeconfig_that_cannot_be_read_is_named(home, tools):
    home.settings.bootstrap_kubeconfig.write_text("clusters: 1")
    with pytest.raises(KubeconfigError, match=r"unable to load bootstrap kubeconfig: .*bootstrap-kubelet\.conf"):
        async with open_identity(home.settings, tools):
            pass


async def test_a_server_that_comes_late_and_goes_in_the_middle_is_waited_for(cluster, home, tools):
    async with cluster.listening():
        pass  # only to have a port
    home.write_bootstrap(cluster.server)

    async def bootstrap():
        async with open_identity(home.settings, tools):
            pass

    async with asyncio.TaskGroup() as group, asyncio.timeout(PROMPTLY):
        task = group.create_task(bootstrap())
        async with cluster.listening():
            cluster.api.faults.plan(Cut(), applies=lambda ask: ask.method == "POST", times=2)
            await cluster.until_requests(1)
        async with cluster.signing():
            with cluster.api.store.changes() as changes:
                while "certificate" not in cluster.requests()[0]["status"]:
                    await changes.get()
        async with cluster.listening():
            await task
    assert len(cluster.requests()) == 1


async def test_a_killed_bootstrap_goes_on_with_the_same_request(cluster, home, tools):
    async with cluster.listening():
        home.write_bootstrap(cluster.server)
        command = (sys.executable, "-c", BOOTSTRAP_PROGRAM, str(home.directory))
        process = await asyncio.create_subprocess_exec(*command)
        (request,) = await cluster.until_requests(1)
        os.kill(process.pid, signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        assert names(home.settings.directory) == ["kubelet-client.key.tmp"]
        assert stat.S_IMODE((home.settings.directory / "kubelet-client.key.tmp").stat().st_mode) == 0o600
        async with cluster.signing(), open_identity(home.settings, tools):
            pass
        (again,) = cluster.requests()
    assert again["metadata"]["uid"] == request["metadata"]["uid"]
    assert "kubelet-client.key.tmp" not in names(home.settings.directory)


async def test_a_kill_before_the_kubeconfig_costs_no_new_request(cluster, home, tools):
    async with cluster.listening(), cluster.signing():
        home.write_bootstrap(cluster.server)
        async with open_identity(home.settings, tools):
            pass
        written = home.settings.kubeconfig.read_text()
        home.settings.kubeconfig.unlink()
        async with open_identity(home.settings, tools):
            pass
        assert len(cluster.requests()) == 1
    assert home.settings.kubeconfig.read_text() == written


async def test_a_request_of_that_name_for_another_key_is_not_used(cluster, home, tools):
    async with cluster.listening():
        home.write_bootstrap(cluster.server)

        async def stop_when_posted():
            async with open_identity(home.settings, tools):
                pass

        async with asyncio.TaskGroup() as group:
            task = group.create_task(stop_when_posted())
            (request,) = await cluster.until_requests(1)
            task.cancel()
        other = await tools.maker.signing_request(TEMPLATE)
        name = request["metadata"]["name"]
        key = Key("certificatesigningrequests.certificates.k8s.io", "", name)
        forged = {**request["spec"], "request": base64.b64encode(other.request.encode()).decode()}
        cluster.api.store.put(key, {**request, "spec": forged})
        with pytest.raises(NotIssued, match=f"csr public keys differ; remove it: kubectl delete csr {name}"):
            async with open_identity(home.settings, tools):
                pass


async def test_a_damaged_key_from_before_is_replaced(cluster, home, tools):
    home.settings.directory.mkdir()
    left = home.settings.directory / "kubelet-client.key.tmp"
    left.write_text("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n")
    async with cluster.listening(), cluster.signing():
        home.write_bootstrap(cluster.server)
        async with open_identity(home.settings, tools):
            pass
    assert not left.exists()
