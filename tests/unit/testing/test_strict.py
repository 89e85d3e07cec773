"""Strict reading of answers."""

import json

import msgspec
import pytest

from klet.api import klet_v1
from klet.testing.strict import decode_strictly

NOW = "2030-01-01T00:00:00+00:00"
WHY = {
    "kind": "trouble",
    "reason": "X",
    "container": "",
    "message": "",
    "measurements": {"a": 1},
    "since": None,
    "next": "",
    "nextAt": NOW,
}
NODE = {
    "node": {"name": "n"},
    "now": NOW,
    "ready": True,
    "conditions": [],
    "summary": "",
    "why": [WHY],
    "timeline": [],
}


def read(document):
    return decode_strictly(klet_v1.NodeExplanation, json.dumps(document).encode())


def test_an_answer_to_the_letter():
    assert read(NODE).why[0].measurements == {"a": 1}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param({**NODE, "more": 1}, r"unknown field `more`", id="a field more"),
        pytest.param({"now": NOW}, r"missing required field `node`", id="fields less, also if they have defaults"),
        pytest.param({**NODE, "why": [{**WHY, "more": 1}]}, r"unknown field `more` - at `\$.why", id="more below"),
        pytest.param({**NODE, "node": {}}, r"missing required field `name` - at `\$.node", id="less below"),
        pytest.param({**NODE, "why": [{**WHY, "nextAt": 5}]}, r"\$.why\[0\].nextAt", id="another type"),
    ],
)
def test_what_is_not(document, said):
    with pytest.raises(msgspec.ValidationError, match=said):
        read(document)


def test_pods_are_left_to_their_own_codec():
    body = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a"}}]}'
    assert decode_strictly(klet_v1.PodListing, body).items[0].metadata.name == "a"
    with pytest.raises(msgspec.ValidationError, match="unknown field `more`"):
        decode_strictly(klet_v1.PodListing, body[:-1] + b',"more":1}')
