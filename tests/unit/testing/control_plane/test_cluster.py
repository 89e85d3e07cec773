"""Which requests of a node count as refused."""

import pytest

from klet.testing.control_plane.cluster import list_refused

EARLY = "configmaps \"a\" is forbidden: no relationship found between node 'n' and this object"


def event(code: int, *, second: int = 0, name: str = "a", message: str = EARLY, verb: str = "watch") -> dict:
    status = {"code": code} if code < 400 else {"code": code, "message": message}
    return {
        "user": {"username": "system:node:n"},
        "userAgent": "klet/1",
        "verb": verb,
        "requestURI": f"/api/v1/namespaces/default/configmaps?name={name}&second={second}",
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": name},
        "responseStatus": status,
        "requestReceivedTimestamp": f"2026-01-01T00:00:{second:02}.500000Z",
    }


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param([event(200)], 0, id="what was allowed"),
        pytest.param([event(403, message="no such right")], 1, id="what was forbidden"),
        pytest.param([event(401)], 1, id="an unknown user"),
        pytest.param([event(403), event(200, second=1)], 0, id="the authorizer knew the pod a moment later"),
        pytest.param([event(403), event(201, second=1)], 0, id="the same for what is created"),
        pytest.param([event(403)], 1, id="it never knew the pod"),
        pytest.param([event(403), event(200, second=9)], 1, id="it knew the pod too late for that excuse"),
        pytest.param([event(403), event(200, second=1, name="b")], 1, id="another object was allowed"),
        pytest.param([event(403), event(200, second=1, verb="get")], 1, id="another verb was allowed"),
        pytest.param([event(200), event(403, second=1)], 1, id="it was allowed before only"),
        pytest.param([event(403, message="no"), event(200, second=1)], 1, id="another reason, then allowed"),
    ],
)
def test_list_refused(events, expected):
    assert len(list_refused(events, user="system:node:n", program="klet/")) == expected
    assert list_refused(events, user="system:node:other", program="klet/") == []
    assert list_refused(events, user="system:node:n", program="kubelet/") == []
