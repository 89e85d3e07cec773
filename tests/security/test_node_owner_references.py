"""ownerReferences on the Node (CVE-2025-5187): an owner that does not exist makes the garbage collector delete it."""

import json

from klet.api.meta import ObjectMeta, OwnerReference
from klet.api.node import Node


def bodies(target):
    """What the agent has sent about its Node."""
    sent = [asked for asked in target.cluster.requests if asked.is_agent and asked.path.startswith("/api/v1/nodes")]
    return [json.loads(asked.body) for asked in sent if asked.body]


def has_key(value, key):
    if isinstance(value, dict):
        return key in value or any(has_key(each, key) for each in value.values())
    return isinstance(value, list) and any(has_key(each, key) for each in value)


async def until_reported(target):
    def holds():
        return any(node.get("status", {}).get("conditions") for node in target.cluster.objects("nodes"))

    await target.cluster.until(holds, what="a status of the node")


async def test_the_agent_never_writes_any(attack, pod):
    async with attack("--node-labels=example.com/a=b", cluster=True) as target:
        await target.start(pod("web"))
        await until_reported(target)
        assert bodies(target)
        assert not any(has_key(body, "ownerReferences") for body in bodies(target))
        assert not any(has_key(body, "finalizers") for body in bodies(target))


async def test_those_of_somebody_else_are_neither_taken_over_nor_removed(attack, pod):
    owner = OwnerReference(api_version="v1", kind="ConfigMap", name="fleet", uid="7")
    target = await attack.on(cluster=True)
    await target.cluster.client.create(Node(metadata=ObjectMeta(name="node", owner_references=(owner,))))
    async with attack.run(target):
        await target.start(pod("web"))
        await until_reported(target)
        [node] = target.cluster.objects("nodes")
        assert [each["uid"] for each in node["metadata"]["ownerReferences"]] == ["7"]
        assert not any(has_key(body, "ownerReferences") for body in bodies(target))


async def test_a_label_that_would_move_other_pods_here_is_refused(attack):
    """Labels of the kubernetes.io domains are the cluster's; only those that nodes may set are taken."""
    target = await attack.on(cluster=True)
    code, said = await target.node.run_to_end(
        f"--config={write_config(target)}",
        f"--kubeconfig={target.cluster.kubeconfig(target.directory)}",
        "--node-labels=node-restriction.kubernetes.io/tenant=a",
    )
    assert code == 1
    assert "node-restriction.kubernetes.io/tenant" in said


def write_config(target):
    target.node.config.write_text(json.dumps(target.node.settings))
    return target.node.config
