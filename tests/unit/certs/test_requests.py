from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.certificates import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestStatus,
)
from klet.api.meta import ObjectMeta
from klet.certs.errors import NotIssued, RequestExists
from klet.certs.messages import Purpose
from klet.certs.requests import CertificateRequester, Issued, Posted, RequestFailed, judge_request
from klet.certs.templates import build_client_template

POSTED = Posted(name="csr-abc", uid="u", key="k")
TEMPLATE = build_client_template("edge-1")


def seen(*conditions, certificate=b"", uid="u"):
    found = tuple(
        CertificateSigningRequestCondition(type=kind, status="True", reason="R", message="M") for kind in conditions
    )
    status = CertificateSigningRequestStatus(conditions=found, certificate=certificate)
    return CertificateSigningRequest(metadata=ObjectMeta(name="csr-abc", uid=uid), status=status)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(seen(), None, id="nobody has decided yet"),
        pytest.param(seen("Approved"), None, id="approved and not signed yet"),
        pytest.param(seen(certificate=b"c"), None, id="a certificate without an approval does not count"),
        pytest.param(seen("Approved", certificate=b"c"), Issued("c"), id="approved and signed"),
        pytest.param(
            seen("Denied"),
            RequestFailed("certificate signing request is denied, reason: R, message: M"),
            id="denied",
        ),
        pytest.param(
            seen("Approved", "Failed"),
            RequestFailed("certificate signing request failed, reason: R, message: M"),
            id="approved, but it cannot be signed",
        ),
        pytest.param(None, RequestFailed('csr "csr-abc" was deleted'), id="deleted"),
        pytest.param(
            seen("Approved", certificate=b"c", uid="other"),
            RequestFailed('csr "csr-abc" changed UIDs'),
            id="another one",
        ),
    ],
)
def test_judge_request(request_, expected):
    assert judge_request(request_, POSTED) == expected


def test_the_key_is_never_shown():
    assert "secret" not in repr(Posted(name="n", uid="u", key="secret"))


class Api:
    """An API server that has at most one request."""

    def __init__(self, there=None):
        self.there = there
        self.posted = []

    async def create(self, request):
        self.posted.append(request)
        if self.there is not None:
            raise RequestExists("it exists", may_pass=False, is_server_well=True)
        name = request.metadata.name or f"{request.metadata.generate_name}abc"
        return replace(request, metadata=replace(request.metadata, name=name, uid="u"))

    async def get(self, name):
        return replace(self.there, metadata=replace(self.there.metadata, name=name))

    async def follow(self, name, judge):  # noqa: ARG002  # the port's signature
        return judge(self.there)


async def test_a_rotation_has_a_new_key_each_time_and_a_name_from_the_server(maker):
    api = Api()
    requester = CertificateRequester(purpose=Purpose.SERVER, maker=maker, api=api)
    first, second = [await requester.post(TEMPLATE) for _ in range(2)]
    assert (first.name, first.uid) == ("csr-abc", "u")
    assert first.key != second.key
    spec = api.posted[0].spec
    assert (spec.signer_name, spec.usages, spec.expiration_seconds) == (
        "kubernetes.io/kubelet-serving",
        ("digital signature", "server auth"),
        None,
    )


async def test_the_same_key_is_the_same_request(maker, clock):
    api = Api()
    requester = CertificateRequester(purpose=Purpose.CLIENT, maker=maker, api=api)
    made = await requester.make(TEMPLATE)
    first = await requester.post_again(TEMPLATE, made, now=clock.now())
    api.there = replace(api.posted[0], metadata=ObjectMeta(uid="of the first"))
    again = await requester.post_again(TEMPLATE, await requester.make(TEMPLATE, key=made.key), now=clock.now())
    assert first.name == again.name
    assert again.uid == "of the first"


@pytest.mark.parametrize("what", ["signer", "key", "certificate"])
async def test_a_request_that_is_there_and_cannot_be_used(maker, clock, new_pair, what):
    api = Api()
    requester = CertificateRequester(purpose=Purpose.CLIENT, maker=maker, api=api)
    made = await requester.make(TEMPLATE)
    await requester.post_again(TEMPLATE, made, now=clock.now())
    posted = api.posted[0]
    expected = {
        "signer": (replace(posted, spec=replace(posted.spec, signer_name="other")), "csr signerNames differ"),
        "key": (
            replace(posted, spec=replace(posted.spec, request=(await requester.make(TEMPLATE)).request.encode())),
            "csr public keys differ",
        ),
        "certificate": (
            replace(posted, status=CertificateSigningRequestStatus(certificate=new_pair().certificate.encode())),
            "one of the certificates for the CSR has expired",
        ),
    }
    api.there, message = expected[what]
    clock.advance(timedelta(days=366))
    with pytest.raises(NotIssued, match=rf"retrieved csr is not compatible: {message}.*kubectl delete csr node-csr-"):
        await requester.post_again(TEMPLATE, made, now=clock.now())
