"""What is written to a credential provider, and how its answer is read."""

import json
from datetime import timedelta

import pytest

from klet.images.docker_config import RegistryLogin
from klet.images.providers.messages import (
    BadResponse,
    CacheKeyType,
    ProviderAnswer,
    ProviderRequest,
    decode_response,
    encode_request,
)

V1 = "credentialprovider.kubelet.k8s.io/v1"
UNREADABLE = "error decoding credential provider plugin response from stdout"
SECRET = "s3cr3t"
GOOD = {
    "kind": "CredentialProviderResponse",
    "apiVersion": V1,
    "cacheKeyType": "Registry",
    "cacheDuration": "5m",
    "auth": {"registry.example.com": {"username": "user", "password": SECRET}},
}


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        pytest.param(
            ProviderRequest(image="registry.example.com/team/app"),
            '{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1",'
            '"image":"registry.example.com/team/app"}\n',
            id="without an account",
        ),
        pytest.param(
            ProviderRequest(image="i", token=SECRET, annotations={"b": "2", "a": "1"}),
            '{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"i",'
            '"serviceAccountToken":"s3cr3t","serviceAccountAnnotations":{"a":"1","b":"2"}}\n',
            id="with an account",
        ),
    ],
)
def test_request(request_, line):
    assert encode_request(request_, api_version=V1).decode() == line
    assert SECRET not in repr(request_)


def test_every_field_of_an_answer_is_read():
    assert decode_response(json.dumps(GOOD).encode(), api_version=V1) == ProviderAnswer(
        cache_key_type=CacheKeyType.REGISTRY,
        cache_duration=timedelta(minutes=5),
        logins={"registry.example.com": RegistryLogin("user", SECRET)},
    )


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_versions(version):
    api_version = f"credentialprovider.kubelet.k8s.io/{version}"
    answer = decode_response(json.dumps({**GOOD, "apiVersion": api_version}).encode(), api_version=api_version)
    assert answer.cache_key_type is CacheKeyType.REGISTRY


@pytest.mark.parametrize(
    ("change", "logins", "cached"),
    [
        pytest.param({"auth": None}, {}, timedelta(minutes=5), id="no logins at all"),
        pytest.param({"auth": {}}, {}, timedelta(minutes=5), id="an empty map of logins"),
        pytest.param({"auth": {"r": None}}, {"r": RegistryLogin("", "")}, timedelta(minutes=5), id="an empty login"),
        pytest.param({"auth": {}, "cacheDuration": None}, {}, None, id="the configured duration"),
        pytest.param({"auth": {}, "cacheDuration": "0s"}, {}, timedelta(), id="not to be kept"),
    ],
)
def test_what_may_be_left_out(change, logins, cached):
    answer = decode_response(json.dumps({**GOOD, **change}).encode(), api_version=V1)
    assert (answer.logins, answer.cache_duration) == (logins, cached)


def changed(**fields):
    return json.dumps({**GOOD, **fields}).encode()


TWICE = json.dumps(GOOD).encode().replace(b'"password"', b'"password": "s3cr3t", "password"')


@pytest.mark.parametrize(
    ("output", "message"),
    [
        pytest.param(b"", f"{UNREADABLE}: it is not JSON", id="nothing"),
        pytest.param(f"password: {SECRET}".encode(), f"{UNREADABLE}: it is not JSON", id="YAML"),
        pytest.param(json.dumps(GOOD).encode() + b" s3cr3t", f"{UNREADABLE}: it is not JSON", id="more behind it"),
        pytest.param(b"\xff" + SECRET.encode(), f"{UNREADABLE}: it is not JSON", id="no text"),
        pytest.param(b'{"auth":' * 100_000, f"{UNREADABLE}: it is not JSON", id="nested without end"),
        pytest.param(
            changed(password=SECRET),
            f"{UNREADABLE}: a field is unknown, missing or of the wrong type",
            id="an unknown field",
        ),
        pytest.param(
            changed(auth={"r": {"username": "u", "password": SECRET, "email": "e"}}),
            f"{UNREADABLE}: a field is unknown, missing or of the wrong type",
            id="an unknown field of a login",
        ),
        pytest.param(
            changed(auth=[SECRET]), f"{UNREADABLE}: a field is unknown, missing or of the wrong type", id="a list"
        ),
        pytest.param(
            changed(kind="Secret"),
            f"{UNREADABLE}: a field is unknown, missing or of the wrong type",
            id="another kind",
        ),
        pytest.param(TWICE, f"{UNREADABLE}: a field is there twice", id="a field twice"),
        pytest.param(
            changed(cacheDuration="soon"), f"{UNREADABLE}: cacheDuration is no duration such as 5m", id="no duration"
        ),
        pytest.param(
            changed(apiVersion=f"{V1}beta1"),
            f"apiVersion from credential plugin response did not match expected apiVersion:{V1}, "
            f"actual apiVersion:{V1}beta1",
            id="another version",
        ),
        pytest.param(
            b"{}",
            f"apiVersion from credential plugin response did not match expected apiVersion:{V1}, actual apiVersion:",
            id="no version",
        ),
        pytest.param(
            changed(cacheKeyType="Node"),
            "credential provider plugin did not return a valid cacheKeyType: Node",
            id="an unknown key type",
        ),
        pytest.param(
            changed(cacheKeyType=None),
            "credential provider plugin did not return a valid cacheKeyType: ",
            id="no key type",
        ),
    ],
)
def test_answers_that_are_refused(output, message):
    with pytest.raises(BadResponse) as refused:
        decode_response(output, api_version=V1)
    assert str(refused.value) == message
    assert SECRET not in repr(refused.value)


def test_what_is_quoted_of_an_answer_is_short():
    for change in ({"apiVersion": "x" * 100_000}, {"cacheKeyType": "x" * 100_000}):
        with pytest.raises(BadResponse) as refused:
            decode_response(changed(**change), api_version=V1)
        assert len(str(refused.value)) < 1500
