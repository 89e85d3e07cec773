import asyncio
import random
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from klet.certs.bootstrap import build_kubeconfig, find_flaw, wait_for_server, write_kubeconfig
from klet.certs.child.issue import make_self_signed
from klet.certs.messages import CertificateFacts, KeyAlgorithm, MakeSelfSigned
from klet.kube.access import Access, KeyPair, Login, NoVerification, PemSource, SystemAuthorities
from klet.kube.errors import KubeconfigError
from klet.kube.kubeconfig import load_kubeconfig
from klet.testing.clock import START

SECOND = timedelta(seconds=1)
PAIR = Path("/var/lib/kubelet/pki/kubelet-client-current.pem")
SERVER = "https://api:6443"


class Server:
    def __init__(self, *, comes_after):
        self.left = comes_after
        self.asked = 0

    async def check(self):
        self.asked += 1
        self.left -= 1
        return "connection refused" if self.left >= 0 else ""


async def test_a_server_that_is_there_is_asked_once(clock):
    server = Server(comes_after=0)
    await wait_for_server(server.check, clock=clock, randomness=random.Random(1))
    assert server.asked == 1


async def test_a_server_that_comes_late_is_waited_for(clock):
    server = Server(comes_after=3)
    began = clock.now()
    waiting = asyncio.ensure_future(wait_for_server(server.check, clock=clock, randomness=random.Random(1)))
    while not waiting.done():
        await clock.run(SECOND)
    assert server.asked == 4
    assert 6 * SECOND <= clock.now() - began <= 9 * SECOND


async def test_after_a_minute_the_wait_is_over(clock, caplog):
    server = Server(comes_after=1000)
    began = clock.now()
    waiting = asyncio.ensure_future(wait_for_server(server.check, clock=clock, randomness=random.Random(1)))
    while not waiting.done():
        await clock.run(SECOND)
    assert 60 * SECOND <= clock.now() - began <= 64 * SECOND
    assert "asking it all the same" in caplog.text


@pytest.mark.parametrize(
    "access",
    [
        pytest.param(Access(server=SERVER, authority=PemSource(data=b"pem")), id="authority inline"),
        pytest.param(Access(server=SERVER, authority=PemSource(path=Path("/etc/ca.crt"))), id="authority in a file"),
        pytest.param(Access(server=SERVER, authority=NoVerification()), id="no verification"),
        pytest.param(Access(server=SERVER, authority=SystemAuthorities()), id="the machine's authorities"),
        pytest.param(Access(server=SERVER, server_name="api", proxy="http://proxy:3128"), id="behind a proxy"),
    ],
)
def test_what_is_written_means_the_same_server(access, tmp_path):
    path = tmp_path / "etc" / "kubelet.conf"
    write_kubeconfig(path, build_kubeconfig(access, PAIR))
    read = load_kubeconfig(path)
    assert (read.server, read.authority, read.server_name, read.proxy) == (
        access.server,
        access.authority,
        access.server_name,
        access.proxy,
    )
    assert read.login == Login(pair=KeyPair(PemSource(path=PAIR), PemSource(path=PAIR)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_token_of_the_bootstrap_does_not_go_along():
    access = Access(server=SERVER, login=Login(token="secret"))
    assert "secret" not in str(build_kubeconfig(access, PAIR))


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(KubeconfigError, match=rf"--kubeconfig: cannot make {tmp_path}/file/"):
        write_kubeconfig(tmp_path / "file" / "x" / "kubelet.conf", {})


class Reader:
    """Says that every certificate ends in an hour."""

    async def describe(self, certificate):
        assert certificate
        end = START + timedelta(hours=1)
        return CertificateFacts(not_before=START, not_after=end, chain_not_after=end, key_algorithm=KeyAlgorithm.RSA)


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    pair = make_self_signed(MakeSelfSigned(host="n", now=START))
    path = tmp_path_factory.mktemp("pem") / "pair.pem"
    path.write_text(pair.certificate + pair.key)
    return path


@pytest.mark.parametrize(
    ("user", "later", "expected"),
    [
        pytest.param("pair", timedelta(0), "", id="a good certificate"),
        pytest.param("pair", timedelta(hours=2), "is expired: 2030-01-01 01:00:00", id="an expired one"),
        pytest.param("token", timedelta(0), "has no client certificate", id="a token is not enough"),
        pytest.param("gone", timedelta(0), "No such file or directory", id="a file that is gone"),
        pytest.param("broken", timedelta(0), "client certificate and key cannot be used", id="no certificate at all"),
    ],
)
async def test_what_keeps_a_kubeconfig_from_being_used(pem, tmp_path, user, later, expected):
    (tmp_path / "broken.pem").write_text("nothing")
    files = {"pair": pem, "gone": tmp_path / "gone.pem", "broken": tmp_path / "broken.pem"}
    path = tmp_path / "kubelet.conf"
    config = build_kubeconfig(Access(server=SERVER), files.get(user, pem))
    if user == "token":
        config["users"][0]["user"] = {"token": "t"}
    write_kubeconfig(path, config)
    flaw = await find_flaw(path, Reader(), now=START + later)
    assert expected in flaw
    assert bool(flaw) == bool(expected)


async def test_a_kubeconfig_that_is_not_there_is_a_flaw(tmp_path):
    assert "kubelet.conf" in await find_flaw(tmp_path / "kubelet.conf", Reader(), now=START)
