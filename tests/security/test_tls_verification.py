"""TLS without verification: no flag, field, variable or bad certificate makes the node speak to a false API server.

Two places do without by intention: probes and hooks, which carry no credentials of the node, and the kubeconfig's own
`insecure-skip-tls-verify`, which the node's owner has to write.
"""

import ast
import asyncio
import json
import re
import ssl
import warnings
from datetime import timedelta
from pathlib import Path

import klet
from klet.aio.clock import SystemClock

SOURCE = Path(klet.__file__).parent
INTENDED = {"host/http_client.py", "kube/transport.py", "testing/metrics_comparison/stage.py"}
"""The last one asks a kubelet that it has started itself, whose certificate is its own."""
SWITCHES = {"CERT_NONE", "_create_unverified_context", "_create_default_https_context", "check_hostname"}


def places_without_verification():
    """Modules that name what switches verification off, or pass `ssl=False` to a client."""
    words = re.compile("|".join((*SWITCHES, r"\b(ssl|verify|verify_ssl)=False")))
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        for part in ast.walk(ast.parse(text)) if words.search(text) else ():
            named = isinstance(part, ast.Attribute) and part.attr in SWITCHES
            passed = (
                isinstance(part, ast.keyword)
                and part.arg in {"ssl", "verify", "verify_ssl"}
                and isinstance(part.value, ast.Constant)
                and part.value.value is False
            )
            if named or passed:
                yield str(file.relative_to(SOURCE))


def test_only_probes_and_an_owners_own_words_go_without():
    assert set(places_without_verification()) == INTENDED


async def test_a_server_of_another_authority_gets_no_token(attack, pki, monkeypatch):
    """The variables are those by which Python, curl, Go and Node programs are reported not to look."""
    for name, value in (
        ("PYTHONHTTPSVERIFY", "0"),
        ("NODE_TLS_REJECT_UNAUTHORIZED", "0"),
        ("KUBERNETES_INSECURE_SKIP_TLS_VERIFY", "true"),
        ("SSL_CERT_FILE", str(pki.pair("ca")[0])),
        ("REQUESTS_CA_BUNDLE", ""),
    ):
        monkeypatch.setenv(name, value)
    target = await attack.on(cluster=True)
    target.cluster.authority = pki.pair("other-ca")[0].read_bytes()
    async with attack.run(target):
        await until_logged(target, "CERTIFICATE_VERIFY_FAILED")
    assert target.cluster.requests == []


async def test_a_server_of_another_name_gets_no_token(attack):
    target = await attack.on(cluster=True)
    original = target.cluster.kubeconfig
    target.cluster.kubeconfig = lambda directory: original(directory, **{"tls-server-name": "api.example.com"})
    async with attack.run(target):
        await until_logged(target, "CERTIFICATE_VERIFY_FAILED")
    assert target.cluster.requests == []


async def test_skipping_beside_an_authority_is_refused(attack):
    """Who gives both has made a mistake, and it is not decided in favour of no verification."""
    target = await attack.on(cluster=True)
    file = target.cluster.kubeconfig(attack.directory, **{"insecure-skip-tls-verify": True})
    target.node.config.write_text(json.dumps(target.node.settings))
    code, said = await target.node.run_to_end(f"--config={target.node.config}", f"--kubeconfig={file}")
    assert code == 1
    assert "insecure-skip-tls-verify: must not be set beside a certificate-authority" in said
    assert target.cluster.requests == []


async def test_the_node_itself_speaks_no_old_tls(attack, pki):
    async with attack() as target:
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            assert await handshake_fails(target, pki, version)


async def handshake_fails(target, pki, version):
    context = pki.client("admin")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", target.port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return True
    writer.close()
    return False


async def until_logged(target, text):
    """No watch shows that a file has grown."""
    async with asyncio.timeout(30):
        while text not in target.agent.log:
            await SystemClock().sleep(timedelta(milliseconds=100))
