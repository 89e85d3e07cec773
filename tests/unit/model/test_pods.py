"""Who a pod is, where it came from and how critical it is."""

import msgspec
import pytest
from msgspec.structs import replace

from klet.api.pod_annotations import MIRROR_ANNOTATION, SOURCE_ANNOTATION
from klet.api.pod_resources import is_sidecar
from klet.model.causes import FindingSubject
from klet.model.pods import (
    BadPodUID,
    PodUID,
    format_pod,
    full_name,
    is_critical,
    is_mirror,
    is_static,
    subject_of,
    uid_of,
)
from klet.testing.builders import make_container, make_pod


def test_names():
    pod = make_pod(name="web", uid="u-1")
    assert uid_of(pod) == "u-1"
    assert full_name(pod) == "web_default"
    assert format_pod(pod) == "web_default(u-1)"
    assert subject_of(pod, "main") == FindingSubject(namespace="default", name="web", uid="u-1", container="main")


@pytest.mark.parametrize(
    ("annotations", "priority", "static", "mirror", "critical"),
    [
        pytest.param({}, None, False, False, False, id="a plain pod"),
        pytest.param({SOURCE_ANNOTATION: "api"}, None, False, False, False, id="a pod of the API"),
        pytest.param({SOURCE_ANNOTATION: "file"}, None, True, False, True, id="a static pod is critical"),
        pytest.param({SOURCE_ANNOTATION: ""}, None, True, False, True, id="any source but the API is static"),
        pytest.param({MIRROR_ANNOTATION: "hash"}, None, False, True, True, id="a mirror pod is critical"),
        pytest.param({}, 1_999_999_999, False, False, False, id="a high priority"),
        pytest.param({}, 2_000_000_000, False, False, True, id="a system priority is critical"),
    ],
)
def test_where_a_pod_comes_from(annotations, priority, static, mirror, critical):
    pod = make_pod()
    pod = replace(
        pod, metadata=replace(pod.metadata, annotations=annotations), spec=replace(pod.spec, priority=priority)
    )
    assert (is_static(pod), is_mirror(pod), is_critical(pod)) == (static, mirror, critical)


@pytest.mark.parametrize(("policy", "expected"), [(None, False), ("Never", False), ("Always", True)])
def test_a_sidecar_is_an_init_container_that_always_restarts(policy, expected):
    assert is_sidecar(make_container("c", restart_policy=policy)) is expected


GOOD_UIDS = [
    "8a3b1c2d-0000-4000-8000-000000000001",
    "0123456789abcdef0123456789abcdef",
    "u",
    "my-own.2",
    "A",
    "a" * 253,
]
BAD_UIDS = [
    "",
    ".",
    "..",
    "...",
    "-a",
    "a-",
    ".a",
    "a.",
    "a/b",
    "../a",
    "/",
    "a_b",
    "a b",
    "a\0",
    "a\n",
    "\u00e9",
    "\u0661",
]


@pytest.mark.parametrize("text", GOOD_UIDS)
def test_a_uid_is_the_very_text(text):
    assert PodUID(text) is text
    assert isinstance(text, PodUID)
    assert msgspec.json.decode(msgspec.json.encode({PodUID(text): PodUID(text)}), type=dict[PodUID, PodUID]) == {
        text: text
    }


@pytest.mark.parametrize("text", [*BAD_UIDS, "a" * 254, "a" * 10_000_000])
def test_what_is_no_plain_name_is_no_uid(text):
    assert not isinstance(text, PodUID)
    with pytest.raises(BadPodUID, match=r"invalid pod UID .*: must be at most 253 letters") as caught:
        PodUID(text)
    assert len(str(caught.value)) < 300
    with pytest.raises(BadPodUID):
        uid_of(make_pod("main", uid=text))
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(text), type=PodUID)
