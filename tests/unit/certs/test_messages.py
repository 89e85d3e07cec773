from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from klet.certs.messages import (
    CertificateFacts,
    Describe,
    KeyAlgorithm,
    KeyAndRequest,
    MakeAuthority,
    MakeSelfSigned,
    MakeSigningRequest,
    Pair,
    Purpose,
    Request,
    SignLeaf,
    Template,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEMPLATE = Template(common_name="c", organizations=("o",), dns_names=("d",), ips=("10.0.0.1",))


@pytest.mark.parametrize(
    "request_",
    [
        MakeSelfSigned(host="h", dns_names=("h",), ips=("::1",), now=NOW),
        MakeSigningRequest(template=TEMPLATE, key="k"),
        MakeAuthority(common_name="ca", lifetime=timedelta(days=1), now=NOW),
        SignLeaf(
            authority_certificate_file="/c",
            authority_key_file="/k",
            template=TEMPLATE,
            purpose=Purpose.CLIENT,
            lifetime=timedelta(hours=1),
            now=NOW,
        ),
        Describe(certificate="c", key="k"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_arrives_as_it_was_sent(request_):
    assert msgspec.json.decode(msgspec.json.encode(request_), type=Request) == request_


@pytest.mark.parametrize(
    "message",
    [
        MakeSigningRequest(template=TEMPLATE, key="SECRET"),
        Describe(certificate="c", key="SECRET"),
        Pair(certificate="c", key="SECRET"),
        KeyAndRequest(request="r", key="SECRET", key_algorithm=KeyAlgorithm.RSA, public_key=b""),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_key_is_never_shown(message):
    assert "SECRET" not in repr(message)
    assert "SECRET" not in f"{message}"


def test_facts_say_whether_a_key_was_given():
    facts = CertificateFacts(
        not_before=NOW, not_after=NOW, chain_not_after=NOW, key_algorithm=KeyAlgorithm.ECDSA, key_matches=None
    )
    assert msgspec.json.decode(msgspec.json.encode(facts), type=CertificateFacts).key_matches is None
