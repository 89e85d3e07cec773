"""Static pods that would use what only the API server gives out: claims (CVE-2025-4563), secrets, accounts.

Who can write manifests on a node, or the node's own credentials, must not get at them by way of a mirror pod.
"""

from klet.testing.builders import IMAGE

CLAIMS = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "of-another-tenant"}]}
TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
FORBIDDEN = {
    "claim": CLAIMS,
    "claim-template": TEMPLATE,
    "account": {"serviceAccountName": "admin"},
    "secret-volume": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    "config-volume": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]},
    "pvc-volume": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "token-volume": {
        "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
    },
    "secret-env": {
        "containers": [
            {
                "name": "main",
                "image": IMAGE,
                "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            }
        ]
    },
    "config-env": {
        "containers": [{"name": "main", "image": IMAGE, "envFrom": [{"configMapRef": {"name": "c"}}]}],
    },
    "debugger": {"ephemeralContainers": [{"name": "debug", "image": IMAGE}]},
}


def names(target):
    return {each["metadata"]["name"] for each in target.cluster.objects("pods")}


async def test_a_manifest_that_uses_them_neither_runs_nor_is_shown(attack, pod):
    async with attack(cluster=True) as target:
        for name, spec in FORBIDDEN.items():
            target.node.write(name, pod(name, spec=spec))
        await target.start(pod("zz-last"))
        await target.cluster.until(lambda: "zz-last-node" in names(target), what="a mirror")
        assert names(target) == {"zz-last-node"}
        assert len(target.created()) == 1
        assert set(await target.agent.pods()) == {"zz-last"}


async def test_a_mirror_belongs_to_the_node_and_claims_nothing(attack, pod):
    """Annotations and owners of a manifest are not taken over."""
    manifest = pod("web")
    manifest["metadata"] |= {
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "other", "uid": "1", "controller": True}],
        "finalizers": ["example.com/forever"],
        "annotations": {"kubernetes.io/config.source": "api", "kubernetes.io/config.hash": "forged"},
        "uid": "3b241101-e2bb-4255-8caf-4136c566a962",
    }
    async with attack(cluster=True) as target:
        target.node.write("web", manifest)
        await target.reported("Started", about="web-node")
        await target.cluster.until(lambda: "web-node" in names(target), what="a mirror")
        [mirror] = target.cluster.objects("pods")
        [node] = target.cluster.objects("nodes")
        [owner] = mirror["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "node", node["metadata"]["uid"])
        assert "blockOwnerDeletion" not in owner
        annotations = mirror["metadata"]["annotations"]
        assert annotations["kubernetes.io/config.mirror"] == annotations["kubernetes.io/config.hash"] != "forged"
        assert annotations["kubernetes.io/config.source"] == "file"
        assert mirror["spec"]["nodeName"] == "node"
        assert "resourceClaims" not in mirror["spec"]


async def test_two_manifests_with_one_uid_are_not_mixed(attack, pod):
    """The second neither joins the sandbox of the first nor keeps anything running after it."""
    first, second = pod("aa-first"), pod("bb-second")
    for manifest in (first, second):
        manifest["metadata"]["uid"] = "3b241101-e2bb-4255-8caf-4136c566a962"
    async with attack() as target:
        target.node.write("aa-first", first)
        target.node.write("bb-second", second)
        await target.start(pod("zz-last"))
        assert set(await target.agent.pods()) == {"aa-first", "zz-last"}
        assert len(target.created()) == 2
