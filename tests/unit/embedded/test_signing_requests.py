"""Signing requests: who asked, what stays, and who may write what."""

import pytest

from klet.api.certificates import CertificateSigningRequest
from klet.api.kinds import kind_of
from klet.embedded.identities import ApiUser
from klet.embedded.refusals import RequestRefused
from klet.embedded.registry import ObjectRegistry, ObjectTarget
from klet.embedded.signing_requests import requested_by
from klet.embedded.store import Store
from klet.testing.clock import ManualClock

KIND = kind_of(CertificateSigningRequest)
SPEC = {"request": "AAAA", "signerName": "example.com/s", "usages": ["client auth"]}
APPROVED = {"type": "Approved", "status": "True"}
DENIED = {"type": "Denied", "status": "True"}
FAILED = {"type": "Failed", "status": "True"}


@pytest.fixture
def registry():
    store = Store.open()
    yield ObjectRegistry(store=store, clock=ManualClock())
    store.close()


@pytest.fixture
def write(registry):
    """Writes a part of the status of the one request there is."""
    registry.create(KIND, "", {"metadata": {"name": "Node_csr"}, "spec": SPEC, "status": {"certificate": "AAAA"}})

    def put(subresource, spec=SPEC, **status):
        target = ObjectTarget(KIND, "", "Node_csr", subresource)
        return registry.replace(target, {"metadata": {"name": "Node_csr"}, "spec": spec, "status": status})

    return put


def test_the_requester_is_written_by_the_server():
    lied = {"spec": {**SPEC, "username": "admin", "groups": ["system:masters"], "extra": {"a": ["b"]}}}
    user = ApiUser("system:bootstrap:a", uid="u", groups=("g",))
    assert requested_by(lied, user)["spec"] == {**SPEC, "username": "system:bootstrap:a", "uid": "u", "groups": ["g"]}


def test_a_new_request_is_open(registry, write):
    assert registry.get(ObjectTarget(KIND, "", "Node_csr"))["status"] == {}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"request": ""}, r"spec\.request: Required value", id="no request"),
        pytest.param({"signerName": ""}, r"spec\.signerName: Required value", id="no signer"),
        pytest.param({"usages": []}, r"spec\.usages: Required value", id="no usages"),
        pytest.param({"expirationSeconds": 599}, "duration less than 600 seconds", id="too short a lifetime"),
    ],
)
def test_what_is_not_taken(registry, spec, message):
    with pytest.raises(RequestRefused, match=message):
        registry.create(KIND, "", {"metadata": {"name": "r"}, "spec": {**SPEC, **spec}})


def test_an_approval_writes_decisions_only(write):
    written = write("approval", conditions=[APPROVED, FAILED], certificate="AAAA")
    assert written["status"] == {"conditions": [APPROVED]}


def test_the_signer_writes_everything_else(write):
    write("approval", conditions=[APPROVED])
    written = write("status", conditions=[DENIED, FAILED], certificate="BBBB")
    assert written["status"] == {"conditions": [APPROVED, FAILED], "certificate": "BBBB"}


def test_the_request_itself_never_changes(write):
    assert write("", spec={**SPEC, "signerName": "other"}, conditions=[APPROVED])["spec"] == SPEC
    assert write("approval", spec={}, conditions=[APPROVED])["spec"] == SPEC


def test_a_decision_is_final(write):
    write("approval", conditions=[APPROVED])
    with pytest.raises(RequestRefused, match="conditions may not remove Approved"):
        write("approval", conditions=[])
    with pytest.raises(RequestRefused, match="Approved and Denied conditions are mutually exclusive"):
        write("approval", conditions=[APPROVED, DENIED])
