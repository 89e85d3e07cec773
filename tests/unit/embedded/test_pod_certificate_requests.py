"""Requests of pod certificates: open at first, and decided once."""

import pytest

from klet.api.certificates import PodCertificateRequest
from klet.api.kinds import kind_of
from klet.api.namespace import Namespace
from klet.embedded.refusals import RequestRefused
from klet.embedded.registry import ObjectRegistry, ObjectTarget
from klet.embedded.store import Store
from klet.testing.clock import ManualClock

KIND = kind_of(PodCertificateRequest)
SPEC = {"signerName": "a.b/c", "podName": "p", "podUID": "u", "nodeName": "n", "nodeUID": "m", "pkixPublicKey": "YQ==",
        "proofOfPossession": "Yg==", "serviceAccountName": "default", "serviceAccountUID": "s"}  # fmt: skip


@pytest.fixture
def registry():
    store = Store.open()
    made = ObjectRegistry(store=store, clock=ManualClock())
    made.create(kind_of(Namespace), "", {"metadata": {"name": "ns"}})
    yield made
    store.close()


@pytest.fixture
def open_request(registry):
    body = {"metadata": {"generateName": "req-"}, "spec": SPEC, "status": {"certificateChain": "x"}}
    return registry.create(KIND, "ns", body)


def condition(kind, status="True"):
    return {"type": kind, "status": status, "reason": "Why", "message": "so"}


def write(registry, request, subresource="status", **parts):
    target = ObjectTarget(KIND, "ns", request["metadata"]["name"], subresource)
    return registry.replace(target, {**registry.get(target), **parts})


def test_a_new_one_is_open_and_has_a_lifetime(open_request):
    assert open_request["metadata"]["name"].startswith("req-")
    assert open_request["status"] == {}
    assert open_request["spec"] == {**SPEC, "maxExpirationSeconds": 86400}


def test_its_spec_never_changes(registry, open_request):
    written = write(registry, open_request, "", spec={**SPEC, "podName": "q"})
    assert written["spec"]["podName"] == "p"


def test_a_decision_is_final(registry, open_request):
    status = {"conditions": [condition("Issued")], "certificateChain": "x"}
    assert write(registry, open_request, status=status)["status"] == status
    with pytest.raises(RequestRefused, match="immutable after PodCertificateRequest is issued, denied, or failed"):
        write(registry, open_request, status={"conditions": [condition("Denied")]})


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        pytest.param([condition("Approved")], 'Unsupported value: "Approved"', id="another one"),
        pytest.param([condition("Issued", "False")], 'Unsupported value: "False"', id="one that is not so"),
        pytest.param([condition("Issued"), condition("Denied")], "There may be at most one condition", id="two"),
    ],
)
def test_conditions_that_are_none(registry, open_request, conditions, message):
    with pytest.raises(RequestRefused, match=message):
        write(registry, open_request, status={"conditions": conditions})
