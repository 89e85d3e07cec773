from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from klet.certs.child.asked import read_node_request
from klet.certs.child.issue import make_signing_request, sign_request
from klet.certs.child.loading import Refused, public_bytes
from klet.certs.messages import MakeSigningRequest, Purpose, RefusalReason, SignRequest, Template

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NODE = "system:node:edge-1"
NODES = ("system:nodes",)


def asked(**fields):
    return make_signing_request(MakeSigningRequest(template=Template(**fields)))


def test_a_request_is_read_as_it_was_made():
    template = Template(common_name=NODE, organizations=NODES, dns_names=("edge-1",), ips=("10.0.0.1", "2001:db8::1"))
    made = make_signing_request(MakeSigningRequest(template=template))
    read, key = read_node_request(made.request, Purpose.SERVER)
    assert read == template
    assert public_bytes(key) == made.public_key


@pytest.mark.parametrize(
    ("fields", "purpose", "message"),
    [
        pytest.param(
            {"common_name": NODE, "organizations": ("system:masters",)},
            Purpose.CLIENT,
            "organization must be exactly system:nodes",
            id="another group",
        ),
        pytest.param(
            {"common_name": NODE, "organizations": ("system:masters", *NODES)},
            Purpose.CLIENT,
            "organization must be exactly system:nodes",
            id="another group besides",
        ),
        pytest.param(
            {"common_name": "admin", "organizations": NODES},
            Purpose.CLIENT,
            "common name must begin with system:node:",
            id="somebody who is no node",
        ),
        pytest.param(
            {"common_name": NODE, "organizations": NODES, "dns_names": ("api",)},
            Purpose.CLIENT,
            "a client certificate has no DNS names and addresses",
            id="a client with the name of a server",
        ),
        pytest.param(
            {"common_name": NODE, "organizations": NODES},
            Purpose.SERVER,
            "at least one DNS name or IP address is required",
            id="a server without a name",
        ),
    ],
)
def test_what_no_node_may_have(fields, purpose, message):
    with pytest.raises(Refused, match=message):
        read_node_request(asked(**fields).request, purpose)


def test_a_damaged_request_is_refused():
    with pytest.raises(Refused, match="the signing request is damaged") as caught:
        read_node_request("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n", Purpose.CLIENT)
    assert caught.value.reason is RefusalReason.DAMAGED


@pytest.mark.parametrize(
    ("lifetime", "expected"),
    [
        pytest.param(timedelta(hours=1), timedelta(hours=1), id="a short lifetime is given whole"),
        pytest.param(timedelta(days=365), timedelta(days=365, minutes=-5), id="a long one ends five minutes earlier"),
        pytest.param(timedelta(days=36500), timedelta(days=3650), id="never beyond the authority"),
    ],
)
def test_how_long_a_signed_certificate_lasts(authority_files, lifetime, expected):
    made = asked(common_name=NODE, organizations=NODES)
    signed = sign_request(
        SignRequest(
            authority_certificate_file=str(authority_files[0]),
            authority_key_file=str(authority_files[1]),
            request=made.request,
            purpose=Purpose.CLIENT,
            lifetime=lifetime,
            now=NOW,
        )
    )
    certificate = x509.load_pem_x509_certificate(signed.certificate.encode())
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + expected
    assert public_bytes(certificate.public_key()) == made.public_key
