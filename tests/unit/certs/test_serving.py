import stat
from pathlib import Path

import pytest

from klet.aio.threads import Threads
from klet.certs.errors import PairDamaged, PairError
from klet.certs.serving import (
    GivenFiles,
    Requested,
    SelfSignedFiles,
    ServingConflict,
    ServingPair,
    ServingSettings,
    plan_serving,
)

PKI = Path("/pki")


class Signer:
    """Answers with pairs that were made before."""

    def __init__(self, *pairs):
        self.pairs = list(pairs)
        self.hosts = []

    async def self_signed(self, host):
        self.hosts.append(host)
        return self.pairs.pop(0)


@pytest.fixture
def threads():
    threads = Threads(limit=1)
    yield threads
    threads.close()


@pytest.fixture
def files(tmp_path):
    return SelfSignedFiles(tmp_path / "pki" / "kubelet.crt", tmp_path / "pki" / "kubelet.key")


@pytest.fixture
def serving(threads):
    def build(files, *pairs):
        signer = Signer(*pairs)
        return ServingPair(files=files, host="edge-1", signer=signer, threads=threads), signer

    return build


@pytest.mark.parametrize(
    ("certificate_file", "key_file", "is_requested", "expected"),
    [
        pytest.param("/a.crt", "/a.key", False, GivenFiles(Path("/a.crt"), Path("/a.key")), id="files that are given"),
        pytest.param("", "", False, SelfSignedFiles(PKI / "kubelet.crt", PKI / "kubelet.key"), id="nothing given"),
        pytest.param("", "", True, Requested(None), id="requested from the cluster"),
        pytest.param(
            "/a.crt",
            "/a.key",
            True,
            Requested((Path("/a.crt"), Path("/a.key"))),
            id="requested, with files until it is there",
        ),
        pytest.param("/a.crt", "", True, Requested(None), id="requested: half a pair is no pair"),
        pytest.param(
            "/a.crt",
            "",
            False,
            ServingConflict("tlsPrivateKeyFile: required with tlsCertFile /a.crt; give both or neither"),
            id="a certificate without a key",
        ),
        pytest.param(
            "",
            "/a.key",
            False,
            ServingConflict("tlsCertFile: required with tlsPrivateKeyFile /a.key; give both or neither"),
            id="a key without a certificate",
        ),
    ],
)
def test_plan_serving(certificate_file, key_file, is_requested, expected):
    settings = ServingSettings(
        certificate_file=certificate_file, key_file=key_file, is_requested=is_requested, directory=PKI
    )
    assert plan_serving(settings) == expected


class TestSelfSigned:
    async def test_made_when_there_is_none(self, serving, files, pair):
        part, signer = serving(files, pair)
        assert not await part.is_there()
        found = await part.prepare()
        assert await part.is_there()
        assert signer.hosts == ["edge-1"]
        assert (found.certificate_file, found.key_file) == (files.certificate_file, files.key_file)
        assert files.certificate_file.read_text() == pair.certificate
        assert files.key_file.read_text() == pair.key
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (files.certificate_file, files.key_file)]
        assert modes == [0o644, 0o600]
        assert stat.S_IMODE(files.key_file.parent.stat().st_mode) == 0o755
        assert sorted(path.name for path in files.key_file.parent.iterdir()) == ["kubelet.crt", "kubelet.key"]

    async def test_used_again_when_both_are_there(self, serving, files, pair):
        part, _ = serving(files, pair)
        first = await part.prepare()
        again, signer = serving(files)
        assert await again.prepare() == first
        assert signer.hosts == []

    @pytest.mark.parametrize("missing", ["kubelet.crt", "kubelet.key"])
    async def test_one_alone_is_an_error(self, serving, files, pair, missing):
        part, _ = serving(files, pair, pair)
        await part.prepare()
        path = files.key_file.parent / missing
        path.unlink()
        with pytest.raises(PairError, match=f"error reading {path}, certificate and key must be supplied as a pair"):
            await part.prepare()
        assert not path.exists()

    async def test_a_write_that_was_cut_short_is_finished(self, serving, files, pair):
        part, _ = serving(files, pair)
        await part.prepare()
        files.certificate_file.rename(files.certificate_file.with_name(".kubelet.crt.new"))
        again, signer = serving(files)
        assert (await again.prepare()).certificate == pair.certificate
        assert signer.hosts == []

    async def test_a_write_that_hardly_began_begins_again(self, serving, files, pair, new_pair):
        files.key_file.parent.mkdir()
        files.certificate_file.with_name(".kubelet.crt.new").write_text(new_pair("older").certificate)
        part, _ = serving(files, pair)
        assert (await part.prepare()).certificate == pair.certificate

    async def test_a_pair_that_does_not_fit_is_not_replaced(self, serving, files, pair, other_key):
        part, signer = serving(files, pair)
        await part.prepare()
        files.key_file.write_text(other_key)
        with pytest.raises(PairDamaged) as caught:
            await part.prepare()
        assert str(caught.value) == (
            f"{files.key_file}: the key does not belong to the certificate in {files.certificate_file}; "
            f"remove {files.certificate_file} and {files.key_file} to have new ones made"
        )
        assert files.key_file.read_text() == other_key
        assert len(signer.hosts) == 1

    @pytest.mark.parametrize("name", ["kubelet.crt", "kubelet.key"])
    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda _data: b"", id="empty"),
            pytest.param(lambda data: data[: len(data) // 2], id="half"),
            pytest.param(lambda data: bytes(len(data)), id="full of zeros"),
        ],
    )
    async def test_a_pair_that_a_loss_of_power_has_torn_is_set_aside_and_made_again(
        self, serving, files, pair, new_pair, name, damage
    ):
        part, _ = serving(files, pair)
        await part.prepare()
        path = files.key_file.with_name(name)
        path.write_bytes(torn := damage(path.read_bytes()))
        other = new_pair("other")
        again, signer = serving(files, other)
        assert not await again.is_there()
        assert (await again.prepare()).certificate == other.certificate
        assert path.with_name(f"{name}.corrupt").read_bytes() == torn
        assert len(signer.hosts) == 1

    async def test_a_directory_that_cannot_be_made(self, serving, tmp_path, pair):
        (tmp_path / "pki").write_text("a file")
        files = SelfSignedFiles(tmp_path / "pki" / "x" / "kubelet.crt", tmp_path / "pki" / "x" / "kubelet.key")
        part, _ = serving(files, pair)
        with pytest.raises(PairError, match=r"cannot make .*/pki/x: Not a directory"):
            await part.prepare()


class TestGiven:
    async def test_used_as_they_are(self, serving, tmp_path, pair):
        given = GivenFiles(tmp_path / "my.crt", tmp_path / "my.key")
        given.certificate_file.write_text(pair.certificate)
        given.key_file.write_text(pair.key)
        part, signer = serving(given)
        assert (await part.prepare()).certificate == pair.certificate
        assert signer.hosts == []

    async def test_never_made(self, serving, tmp_path, pair):
        part, signer = serving(GivenFiles(tmp_path / "my.crt", tmp_path / "my.key"), pair)
        with pytest.raises(PairError, match=f"cannot read {tmp_path}/my.crt: No such file"):
            await part.prepare()
        assert signer.hosts == []

    async def test_the_settings_are_named_when_they_do_not_fit(self, serving, tmp_path, pair, other_key):
        given = GivenFiles(tmp_path / "my.crt", tmp_path / "my.key")
        given.certificate_file.write_text(pair.certificate)
        given.key_file.write_text(other_key)
        part, _ = serving(given)
        with pytest.raises(PairDamaged, match="; correct tlsCertFile and tlsPrivateKeyFile"):
            await part.prepare()
