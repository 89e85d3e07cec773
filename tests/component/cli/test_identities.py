"""The authority of a node and its owner's certificate, as the certificate child makes them."""

import ssl

import pytest

from klet.aio.clock import SystemClock
from klet.certs.maker import CertificateMaker
from klet.cli.node.identities import ensure_identities

NAMES = ("ca.crt", "ca.key", "owner.crt", "owner.key")


async def ensure(directory):
    return await ensure_identities(directory, node="klet", maker=CertificateMaker(clock=SystemClock()))


def texts(directory):
    return {name: (directory / name).read_text() for name in NAMES}


def modes(directory):
    return {name: oct((directory / name).stat().st_mode & 0o777) for name in NAMES}


def check_pair(directory):
    """The owner's key belongs to the certificate, which the authority has signed."""
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    context.load_cert_chain(directory / "owner.crt", directory / "owner.key")


async def test_the_owner_of_a_new_node(tmp_path):
    directory = tmp_path / "pki"
    assert await ensure(directory)
    check_pair(directory)
    made = texts(directory)
    assert oct(directory.stat().st_mode & 0o777) == "0o700"
    assert modes(directory) == {"ca.crt": "0o644", "ca.key": "0o600", "owner.crt": "0o644", "owner.key": "0o600"}
    owner = (await CertificateMaker(clock=SystemClock()).describe(made["owner.crt"])).common_name
    assert owner == "klet-owner"
    assert not await ensure(directory)
    assert texts(directory) == made


@pytest.mark.parametrize(
    ("missing", "changed"),
    [
        pytest.param("owner.crt", {"owner.crt", "owner.key"}, id="cut short before the owner had one"),
        pytest.param("ca.crt", set(NAMES), id="without its authority the owner's counts nothing"),
        pytest.param("ca.key", set(NAMES), id="an authority that can sign nothing"),
    ],
)
async def test_what_is_missing_is_made(tmp_path, missing, changed):
    await ensure(tmp_path)
    before = texts(tmp_path)
    (tmp_path / missing).unlink()
    assert await ensure(tmp_path)
    check_pair(tmp_path)
    assert {name for name, text in texts(tmp_path).items() if text != before[name]} == changed
