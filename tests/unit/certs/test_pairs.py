import pytest

from klet.certs.errors import PairDamaged, PairError
from klet.certs.pairs import load_pair

DAMAGED_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
ENCRYPTED = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"


@pytest.fixture
def files(tmp_path):
    def write(certificate, key):
        (tmp_path / "a.crt").write_text(certificate)
        (tmp_path / "a.key").write_text(key)
        return tmp_path / "a.crt", tmp_path / "a.key"

    return write


def test_a_pair(files, pair):
    certificate_file, key_file = files(pair.certificate, pair.key)
    found = load_pair(certificate_file, key_file)
    assert (found.certificate_file, found.key_file, found.certificate) == (certificate_file, key_file, pair.certificate)


def test_both_in_one_file(tmp_path, pair):
    file = tmp_path / "both.pem"
    file.write_text(pair.certificate + pair.key)
    assert load_pair(file, file).certificate == pair.certificate


def test_the_chain_is_kept_and_words_are_not(files, pair, authority_files):
    authority = authority_files[0].read_text()
    found = load_pair(*files(f"words\n{pair.certificate}more words\n{authority}", pair.key))
    assert found.certificate == pair.certificate + authority


def test_a_key_that_belongs_to_another_certificate(files, pair, other_key):
    certificate_file, key_file = files(pair.certificate, other_key)
    with pytest.raises(PairDamaged) as caught:
        load_pair(certificate_file, key_file)
    assert str(caught.value) == f"{key_file}: the key does not belong to the certificate in {certificate_file}"


@pytest.mark.parametrize(
    ("certificate", "key", "name", "rule"),
    [
        pytest.param("", None, "a.crt", "holds no PEM certificate", id="an empty certificate"),
        pytest.param(None, "", "a.key", "holds no PEM private key", id="an empty key"),
        pytest.param(
            None, ENCRYPTED, "a.key", "the key is encrypted; klet needs one without a password", id="a password"
        ),
        pytest.param(
            DAMAGED_CERTIFICATE, None, "a.crt", "the certificate, or its key in .*, cannot be used: ", id="damaged"
        ),
    ],
)
def test_what_is_no_pair(files, pair, certificate, key, name, rule):
    written = files(pair.certificate if certificate is None else certificate, pair.key if key is None else key)
    with pytest.raises(PairDamaged, match=rule) as caught:
        load_pair(*written)
    assert caught.value.path.name == name


def test_a_file_that_is_not_there(files, pair, tmp_path):
    certificate_file, _ = files(pair.certificate, pair.key)
    with pytest.raises(PairError, match=f"cannot read {tmp_path}/none: No such file or directory"):
        load_pair(certificate_file, tmp_path / "none")
