"""Trust bundles: names that say whose they are."""

import pytest

from klet.api.certificates import ClusterTrustBundle
from klet.api.kinds import kind_of
from klet.embedded.refusals import RequestRefused
from klet.embedded.registry import ObjectRegistry, ObjectTarget
from klet.embedded.store import Store
from klet.testing.clock import ManualClock

KIND = kind_of(ClusterTrustBundle)
SIGNER = "example.com/signer"


@pytest.fixture
def registry():
    store = Store.open()
    yield ObjectRegistry(store=store, clock=ManualClock())
    store.close()


def bundle(signer="", **metadata):
    return {"metadata": metadata, "spec": {"trustBundle": "x", **({"signerName": signer} if signer else {})}}


@pytest.mark.parametrize(
    ("signer", "name"),
    [
        pytest.param("", "roots", id="of nobody"),
        pytest.param(SIGNER, "example.com:signer:roots", id="of a signer"),
        pytest.param(SIGNER, "example.com:signer:a.b-c", id="of a signer, with dots"),
    ],
)
def test_names_that_are_taken(registry, signer, name):
    assert registry.create(KIND, "", bundle(signer, name=name))["metadata"]["name"] == name
    assert registry.get(ObjectTarget(KIND, "", name))


def test_a_name_that_the_server_completes(registry):
    made = registry.create(KIND, "", bundle(SIGNER, generateName="example.com:signer:a-"))
    assert made["metadata"]["name"].startswith("example.com:signer:a-")


@pytest.mark.parametrize(
    ("signer", "name", "message"),
    [
        pytest.param("", "a:b", 'without signer name must not have ":" in its name', id="a colon and no signer"),
        pytest.param("", "A", "a lowercase RFC 1123 subdomain", id="no name at all"),
        pytest.param(SIGNER, "roots", "must be named with prefix example.com:signer:", id="no prefix"),
        pytest.param(SIGNER, "example.com:other:x", "must be named with prefix", id="the prefix of another"),
        pytest.param(SIGNER, "example.com:signer:", "a lowercase RFC 1123 subdomain", id="the prefix alone"),
        pytest.param(SIGNER, "example.com:signer:a:b", "a lowercase RFC 1123 subdomain", id="one colon too many"),
    ],
)
def test_names_that_are_not_taken(registry, signer, name, message):
    with pytest.raises(RequestRefused, match=message):
        registry.create(KIND, "", bundle(signer, name=name))


def test_a_bundle_stays_that_of_its_signer(registry):
    registry.create(KIND, "", bundle(SIGNER, name="example.com:signer:a"))
    target = ObjectTarget(KIND, "", "example.com:signer:a")
    with pytest.raises(RequestRefused, match=r"spec\.signerName: Invalid value: .*: field is immutable"):
        registry.replace(target, bundle("example.com/other", name="example.com:signer:a"))
    changed = {"metadata": {"name": "example.com:signer:a"}, "spec": {"signerName": SIGNER, "trustBundle": "y"}}
    assert registry.replace(target, changed)["spec"]["trustBundle"] == "y"
