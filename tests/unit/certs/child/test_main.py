from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from cryptography import x509

from klet.certs.child.__main__ import respond
from klet.certs.messages import (
    REQUEST_LIMIT,
    CertificateFacts,
    ChildRefusal,
    Describe,
    KeyAndRequest,
    MakeAuthority,
    MakeSelfSigned,
    MakeSigningRequest,
    Pair,
    Purpose,
    RefusalReason,
    SignLeaf,
    Template,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def ask(request):
    return respond(msgspec.json.encode(request))


def test_each_request_has_its_answer(authority_files, pair):
    template = Template(common_name="c")
    leaf = SignLeaf(
        authority_certificate_file=str(authority_files[0]),
        authority_key_file=str(authority_files[1]),
        template=template,
        purpose=Purpose.SERVER,
        lifetime=DAY,
        now=NOW,
    )
    assert isinstance(ask(MakeSelfSigned(host="h", dns_names=("h",), now=NOW)), Pair)
    assert isinstance(ask(MakeSigningRequest(template=template)), KeyAndRequest)
    assert isinstance(ask(MakeAuthority(common_name="ca", lifetime=DAY, now=NOW)), Pair)
    assert isinstance(ask(leaf), Pair)
    assert isinstance(ask(Describe(certificate=pair.certificate)), CertificateFacts)


def test_a_name_longer_than_x509_wants_is_not_cut(new_pair):
    name = f"system:node:{'n' * 241}"
    answer = ask(MakeSigningRequest(template=Template(common_name=name)))
    assert isinstance(answer, KeyAndRequest)
    with pytest.warns(UserWarning, match="Attribute's length"):
        request = x509.load_pem_x509_csr(answer.request.encode()).subject
    assert request.rfc4514_string() == f"CN={name}"
    with pytest.warns(UserWarning, match="Attribute's length"):
        pair = new_pair(name)
    facts = ask(Describe(certificate=pair.certificate))
    assert isinstance(facts, CertificateFacts)
    assert facts.common_name == name


def test_a_broken_rule_is_a_refusal():
    assert ask(Describe(certificate="x")) == ChildRefusal(
        reason=RefusalReason.DAMAGED, message="certificate: holds no PEM certificate"
    )


def test_a_value_that_x509_cannot_hold_is_a_refusal():
    """The year would have five digits."""
    answer = ask(MakeAuthority(common_name="ca", lifetime=timedelta(days=366 * 9000), now=NOW))
    assert isinstance(answer, ChildRefusal)
    assert answer.reason is RefusalReason.BAD_VALUE
    assert answer.message.startswith("MakeAuthority: ")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "the request cannot be read", id="nothing"),
        pytest.param(b"{", "the request cannot be read", id="half a document"),
        pytest.param(b'{"kind":"dance"}', "the request cannot be read", id="an unknown request"),
        pytest.param(
            b'{"kind":"describe","certificate":"","x":1}', "the request cannot be read", id="an unknown field"
        ),
        pytest.param(b" " * (REQUEST_LIMIT + 1), "the request is longer than", id="too long"),
    ],
)
def test_what_is_no_request_is_refused(data, message):
    answer = respond(data)
    assert isinstance(answer, ChildRefusal)
    assert answer.reason is RefusalReason.BAD_REQUEST
    assert answer.message.startswith(message)
