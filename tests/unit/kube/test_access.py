"""Client certificates that change under us."""

import pytest

from klet.kube.access import KeyPair, PemSource


def test_a_pair_in_two_files(tmp_path):
    (tmp_path / "c").write_bytes(b"certificate")
    (tmp_path / "k").write_bytes(b"key")
    pair = KeyPair(PemSource(path=tmp_path / "c"), PemSource(path=tmp_path / "k"))
    assert pair.read() == (b"certificate", b"key")


def test_a_pair_inline():
    assert KeyPair(PemSource(data=b"certificate"), PemSource(data=b"key")).read() == (b"certificate", b"key")


def test_one_file_is_read_once(tmp_path):
    (tmp_path / "both").write_bytes(b"both")
    certificate, key = KeyPair(PemSource(path=tmp_path / "both"), PemSource(path=tmp_path / "both")).read()
    assert certificate is key


def test_a_successor_counts_from_the_moment_it_is_there(tmp_path):
    pair = KeyPair(PemSource(data=b"certificate"), PemSource(data=b"key"), successor=tmp_path / "next")
    assert pair.read() == (b"certificate", b"key")
    (tmp_path / "next").write_bytes(b"next")
    assert pair.read() == (b"next", b"next")


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError):
        KeyPair(PemSource(path=tmp_path / "c"), PemSource(path=tmp_path / "k")).read()
