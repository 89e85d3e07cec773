"""For which service account a provider is asked, and whose answers are kept apart."""

import pytest
from msgspec.structs import replace

from klet.api.authentication import BoundObjectReference
from klet.api.config import ServiceAccount
from klet.api.meta import ObjectMeta
from klet.config.credential_provider import ServiceAccountTokenAttributes
from klet.images.providers.accounts import PodAccount, account_key, account_token_request, choose_annotations
from klet.testing.builders import make_pod

ATTRIBUTES = ServiceAccountTokenAttributes(
    service_account_token_audience="registry",
    cache_type="ServiceAccount",
    require_service_account=True,
    required_service_account_annotation_keys=("example.com/tenant",),
    optional_service_account_annotation_keys=("example.com/role",),
)
ACCOUNT = PodAccount(namespace="ns", name="puller", uid="u-1", annotations={"a": "1"}, token="t-1")


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, None, id="a required one is missing"),
        pytest.param({"example.com/role": "r"}, None, id="an optional one is not enough"),
        pytest.param({"example.com/tenant": ""}, {"example.com/tenant": ""}, id="an empty one is there"),
        pytest.param(
            {"example.com/tenant": "t", "example.com/role": "r", "example.com/other": "o"},
            {"example.com/tenant": "t", "example.com/role": "r"},
            id="no other is told",
        ),
    ],
)
def test_annotations(annotations, expected):
    account = ServiceAccount(metadata=ObjectMeta(name="puller", annotations=annotations))
    assert choose_annotations(account, ATTRIBUTES) == expected


@pytest.mark.parametrize(
    ("change", "same_by_account", "same_by_token"),
    [
        pytest.param({}, True, True, id="the same"),
        pytest.param({"token": "t-2"}, True, False, id="the token of another pod"),
        pytest.param({"uid": "u-2"}, False, False, id="an account that was made again"),
        pytest.param({"namespace": "other"}, False, False, id="another namespace"),
        pytest.param({"name": "other"}, False, False, id="another name"),
        pytest.param({"annotations": {"a": "2"}}, False, False, id="another annotation"),
    ],
)
def test_keys(change, same_by_account, same_by_token):
    for cache_type, same in (("ServiceAccount", same_by_account), ("Token", same_by_token)):
        attributes = replace(ATTRIBUTES, cache_type=cache_type)
        assert (account_key(ACCOUNT, attributes) == account_key(replace(ACCOUNT, **change), attributes)) is same


def test_there_is_no_key_without_an_account():
    assert account_key(None, ATTRIBUTES) is None
    assert account_key(None, None) is None


def test_no_token_is_in_a_key_or_shown():
    key = account_key(replace(ACCOUNT, token="s3cr3t"), replace(ATTRIBUTES, cache_type="Token"))
    assert "s3cr3t" not in repr(key)
    assert "s3cr3t" not in repr(replace(ACCOUNT, token="s3cr3t"))


def test_the_token_is_for_the_pod_and_this_very_account():
    account = ServiceAccount(metadata=ObjectMeta(name="puller", uid="u-1"))
    request = account_token_request(make_pod(name="p", uid="uid-1"), account, ATTRIBUTES)
    assert request.metadata.uid == "u-1"
    assert request.spec.audiences == ("registry",)
    assert request.spec.expiration_seconds is None
    assert request.spec.bound_object_ref == BoundObjectReference(kind="Pod", api_version="v1", name="p", uid="uid-1")
