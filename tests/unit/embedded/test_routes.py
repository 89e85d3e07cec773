"""What URL paths mean."""

import pytest

from klet.api.kinds import find_kind
from klet.embedded.routes import Route, find_route

POD, NODE = find_kind("v1", "Pod"), find_kind("v1", "Node")
LEASE, NAMESPACE = find_kind("coordination.k8s.io/v1", "Lease"), find_kind("v1", "Namespace")


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/api/v1/pods", Route(POD)),
        ("/api/v1/namespaces/default/pods", Route(POD, "default")),
        ("/api/v1/namespaces/default/pods/p", Route(POD, "default", "p")),
        ("/api/v1/namespaces/default/pods/p/status", Route(POD, "default", "p", "status")),
        ("/api/v1/nodes/n/status", Route(NODE, "", "n", "status")),
        ("/api/v1/namespaces", Route(NAMESPACE)),
        ("/api/v1/namespaces/default", Route(NAMESPACE, "", "default")),
        ("/api/v1/namespaces/default/finalize", Route(NAMESPACE, "", "default", "finalize")),
        ("/apis/coordination.k8s.io/v1/namespaces/a/leases/n", Route(LEASE, "a", "n")),
        ("/api/v1/namespaces/default/nodes", None),
        ("/api/v1/pods/p", None),
        ("/api/v1/nothing", None),
        ("/api/v2/pods", None),
        ("/api/v1/namespaces/default/pods/p/status/more", None),
        ("/metrics", None),
    ],
)
def test_find_route(path, route):
    assert find_route(path) == route
