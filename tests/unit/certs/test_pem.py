import pytest

from klet.certs.pem import certificate_blocks, is_encrypted, key_block

A = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
B = "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n"
EC = "-----BEGIN EC PRIVATE KEY-----\nEEEE\n-----END EC PRIVATE KEY-----\n"
RSA = "-----BEGIN RSA PRIVATE KEY-----\nRRRR\n-----END RSA PRIVATE KEY-----\n"
PLAIN = "-----BEGIN PRIVATE KEY-----\nPPPP\n-----END PRIVATE KEY-----\n"
PARAMETERS = "-----BEGIN EC PARAMETERS-----\nBggq\n-----END EC PARAMETERS-----\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", (), id="nothing has no certificate"),
        pytest.param(A + B, (A, B), id="the order stays"),
        pytest.param(f"subject=CN\n{A}words{B}", (A, B), id="text between blocks is left out"),
        pytest.param(A + EC + B, (A, B), id="a key is no certificate"),
        pytest.param(A.rstrip(), (A,), id="each block ends with a newline"),
        pytest.param(A[:-10], (), id="a block without its end is none"),
    ],
)
def test_certificate_blocks(text, expected):
    assert certificate_blocks(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(A, "", id="a certificate is no key"),
        pytest.param(A + EC, EC, id="a key may follow certificates"),
        pytest.param(PARAMETERS + EC, EC, id="the parameters of a curve are passed over"),
        pytest.param(RSA, RSA, id="RSA keys count"),
        pytest.param(PLAIN + RSA, PLAIN, id="the first key counts"),
    ],
)
def test_key_block(text, expected):
    assert key_block(text) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(EC, False, id="a plain key needs no password"),
        pytest.param(PLAIN.replace("PRIVATE", "ENCRYPTED PRIVATE"), True, id="PKCS 8 says it in the type"),
        pytest.param(
            RSA.replace("RRRR", "Proc-Type: 4,ENCRYPTED\nDEK-Info: x\n\nRRRR"), True, id="older keys say it in a header"
        ),
    ],
)
def test_is_encrypted(key, expected):
    assert is_encrypted(key) is expected
