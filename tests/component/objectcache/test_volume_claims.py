"""Claims, their volumes and this node, from a real API server."""

import random

import pytest

from klet.aio.clock import SystemClock
from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.node import Node
from klet.api.quantity import Quantity
from klet.api.storage import PersistentVolume
from klet.kube.errors import Conflict, NotFound
from klet.kube.informer import InformerSettings
from klet.kube.node_informers import build_informers
from klet.objectcache.claims import ClusterClaims
from klet.objectcache.own_node import OwnNode
from klet.testing.clock import FastClock
from klet.volumes.expansion_plan import patch_begun, patch_failed, patch_finished

NEW = Quantity.parse("2Gi")
STATUS = {
    "phase": "Bound",
    "capacity": {"storage": "1Gi"},
    "allocatedResourceStatuses": {"storage": "NodeResizePending"},
    "conditions": [
        {"type": "FileSystemResizePending", "status": "True"},
        {"type": "Mine", "status": "True"},
    ],
}


@pytest.fixture
async def claims(cluster):
    body = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    await cluster.client.create(convert(PersistentVolumeClaim, body), "default")
    await cluster.client.patch(PersistentVolumeClaim, "c", "default", patch={"status": STATUS}, subresource="status")
    return ClusterClaims(client=cluster.client, clock=SystemClock())


async def test_a_claim_that_is_not_there_is_not_found(claims):
    with pytest.raises(NotFound):
        await claims.claim("default", "other")
    with pytest.raises(NotFound):
        await claims.persistent_volume("other")


async def test_a_volume_is_read_by_its_name(cluster, claims):
    body = {"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "1Gi"}, "local": {"path": "/x"}}}
    await cluster.client.create(convert(PersistentVolume, body))
    assert (await claims.persistent_volume("pv")).spec.local.path == "/x"


async def test_a_claim_says_where_its_expansion_stands(claims):
    claim = await claims.patch_claim_status("default", "c", patch_begun(await claims.claim("default", "c")))
    assert claim.status.allocated_resource_statuses == {"storage": "NodeResizeInProgress"}
    claim = await claims.patch_claim_status("default", "c", patch_finished(claim, NEW))
    assert claim.status.capacity == {"storage": NEW}
    assert claim.status.allocated_resource_statuses == {}
    assert [each.type for each in claim.status.conditions] == ["Mine"]


async def test_a_failed_expansion_leaves_the_other_conditions(claims):
    claim = await claims.claim("default", "c")
    patch = patch_failed(claim, "no space", is_infeasible=True, now=FastClock().now())
    claim = await claims.patch_claim_status("default", "c", patch)
    assert claim.status.allocated_resource_statuses == {"storage": "NodeResizeInfeasible"}
    found = {each.type: each.message for each in claim.status.conditions}
    assert found == {
        "FileSystemResizePending": "", "Mine": "", "NodeResizeError": "failed to expand pvc with no space"
    }  # fmt: skip


async def test_a_claim_that_has_changed_meanwhile_is_not_overwritten(claims):
    old = await claims.claim("default", "c")
    await claims.patch_claim_status("default", "c", patch_begun(old))
    with pytest.raises(Conflict):
        await claims.patch_claim_status("default", "c", patch_finished(old, NEW))


async def test_the_node_is_asked_for(cluster):
    settings = InformerSettings(cluster.client, cluster.watcher, FastClock(), random.Random(1))
    informer = build_informers(settings, "n1").node
    node = OwnNode(informer=informer, client=cluster.client, name="n1")
    with pytest.raises(NotFound):
        await node.read()
    await cluster.client.create(convert(Node, {"metadata": {"name": "n1"}}))
    assert (await node.read()).metadata.name == "n1"
