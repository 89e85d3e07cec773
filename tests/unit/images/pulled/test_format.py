"""The files of pulled images, byte by byte as upstream writes them."""

import json
from datetime import UTC, datetime

import pytest

from klet.images.pulled.format import (
    BadPullFile,
    ImagePullCredentials,
    decode_intent,
    decode_record,
    encode_intent,
    encode_record,
    file_name,
    is_file_name,
    is_older,
    new_record,
)
from klet.images.sources import ImagePullSecret, ImagePullServiceAccount

IMAGE = "docker.io/testing/test:latest"
INTENT = (
    b'{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"docker.io/testing/test:latest"}\n'
)
REF = "sha256:" + 64 * "1"
AT = datetime(2025, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
HASH = "cb54b00fb550d4a17c448149caa29f38f4d5a44fb87c752e43db8160af3a032a"
SECRET = ImagePullSecret("aaaaaaaa-0000-0000-0000-000000000001", "default", "regcred", HASH)
RECORD = (
    '{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1",'
    f'"lastUpdatedTime":"2025-01-02T03:04:05Z","imageRef":"{REF}","credentialMapping":'
    '{"docker.io/library/nginx":{"kubernetesSecrets":[{"uid":"aaaaaaaa-0000-0000-0000-000000000001",'
    f'"namespace":"default","name":"regcred","credentialHash":"{HASH}"}}]}}}}}}\n'
).encode()


def record_of(credentials, repository="docker.io/library/nginx"):
    return new_record(REF, {repository: credentials}, now=AT)


def test_the_names_of_files():
    assert file_name(IMAGE) == "sha256-aef2af226629a35d5f3ef0fdbb29fdbebf038d0acd8850590e8c48e1e283aa56"
    assert file_name(REF) == "sha256-5d4cc820b37f3d1fd0c6e04ed50a56ead8d497ecfd3c25c749855ed9d852837d"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sha256-aef2", True),
        ("sha256-aef2.tmp", False),
        (".sha256-aef2.0123456789ab", False),
        ("README", False),
        ("sha512-aef2", False),
    ],
)
def test_which_names_are_read(name, expected):
    assert is_file_name(name) is expected


def test_an_intent():
    assert encode_intent(IMAGE) == INTENT
    assert decode_intent(INTENT).image == IMAGE


def test_a_record_of_a_secret():
    record = record_of(ImagePullCredentials(kubernetes_secrets=(SECRET,)))
    assert encode_record(record) == RECORD
    assert decode_record(RECORD) == record


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        pytest.param(ImagePullCredentials(node_pods_accessible=True), {"nodePodsAccessible": True}, id="of the node"),
        pytest.param(
            ImagePullCredentials(kubernetes_service_accounts=(ImagePullServiceAccount("u", "ns", "sa"),)),
            {"kubernetesServiceAccounts": [{"uid": "u", "namespace": "ns", "name": "sa"}]},
            id="of a service account",
        ),
    ],
)
def test_other_credentials(credentials, text):
    data = encode_record(record_of(credentials))
    assert json.loads(data)["credentialMapping"] == {"docker.io/library/nginx": text}
    assert decode_record(data) == record_of(credentials)


def test_a_record_without_credentials_has_no_mapping():
    data = encode_record(new_record(REF, {}, now=AT))
    assert "credentialMapping" not in json.loads(data)
    assert decode_record(data) == new_record(REF, {}, now=AT)


def test_repositories_are_sorted_as_go_does():
    everybody = ImagePullCredentials(node_pods_accessible=True)
    data = encode_record(new_record(REF, {"b/x": everybody, "a/x": everybody}, now=AT))
    assert list(json.loads(data)["credentialMapping"]) == ["a/x", "b/x"]


def test_files_of_the_older_version_are_read_and_written_as_the_newer():
    intent, record = (decode(data.replace(b"v1beta1", b"v1alpha1"))
                      for decode, data in ((decode_intent, INTENT), (decode_record, RECORD)))  # fmt: skip
    assert is_older(intent)
    assert is_older(record)
    assert encode_intent(intent.image) == INTENT
    assert encode_record(record) == RECORD
    assert not is_older(decode_record(RECORD))


def test_an_intent_with_an_unknown_field_is_none():
    with pytest.raises(BadPullFile, match="unknown field"):
        decode_intent(INTENT.replace(b'"image"', b'"until":"x","image"'))


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        pytest.param(b"", "truncated", id="empty"),
        pytest.param(b"\xff\xfe", "malformed", id="no text"),
        pytest.param(b"[" * 200_000, "", id="deeply nested"),
        pytest.param(RECORD[:-30], "truncated", id="torn"),
        pytest.param(INTENT, "unknown field", id="another kind"),
        pytest.param(RECORD.replace(b"ImagePulledRecord", b"Pod"), "field kind is 'Pod'", id="another kind of object"),
        pytest.param(RECORD.replace(b"v1beta1", b"v9"), "field apiVersion is 'kubelet.config.k8s.io/v9'", id="newer"),
        pytest.param(RECORD.replace(b"2025-01-02T03", b"yesterday"), "Invalid RFC3339", id="no time"),
        pytest.param(RECORD.replace(b'"regcred"', b"7"), "Expected `str`", id="a name that is a number"),
        pytest.param(
            RECORD.replace(b'"imageRef"', b'"expires":"x","imageRef"'), "unknown field", id="a field of a record"
        ),
        pytest.param(RECORD.replace(b'"name"', b'"scope":"x","name"'), "unknown field", id="a field of a secret"),
        pytest.param(
            RECORD.replace(b'"kubernetesSecrets"', b'"never":true,"kubernetesSecrets"'),
            "unknown field",
            id="a field of credentials",
        ),
        pytest.param(RECORD.replace(b"ImagePulledRecord", b"x" * 5000), "…", id="a long word is not quoted whole"),
    ],
)
def test_what_is_no_record(data, rule):
    with pytest.raises(BadPullFile) as caught:
        decode_record(data)
    assert rule in str(caught.value)
    assert len(str(caught.value)) < 2500
    assert "regcred" not in str(caught.value)
