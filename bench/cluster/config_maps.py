"""From the change of a ConfigMap to the file in the pods that have it as a volume."""

import asyncio
import time

from bench.cluster.node import NodeUnderTest
from bench.cluster.turns import Ground
from bench.cluster.watch import is_running
from bench.manifests import make_manifest
from bench.rows import Round, Row
from klet.kube.client import PatchType

COUNT = 5
MOST = 1.0
PATIENCE = 180
MAPS = "/api/v1/namespaces/default/configmaps"
REST = 15.0
"""Seconds in which nothing else happens to the pods: a sync for another reason would bring the change along."""
_LOOK = 0.005


async def measure_config_maps(ground: Ground) -> list[Row]:
    """One round, for upstream's kubelet looks about once a minute; several pods, each with a ConfigMap of its own."""
    turns = await ground.take_turns(_change, rounds=1)
    (klet,), (upstream,) = turns.klet, turns.upstream
    return [
        Row(what="ConfigMap change -> file, p50", klet=klet.p50, upstream=upstream.p50, unit="s", most=MOST),
        Row(what="ConfigMap change -> file, worst", klet=klet.last, upstream=upstream.last, unit="s", most=MOST),
    ]


async def _change(node: NodeUnderTest, _number: int) -> Round:
    names = [f"{node.name}-map-{number}" for number in range(COUNT)]
    for name in names:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "old"}}
        await node.api.send("POST", MAPS, made)
    await node.create([_with_volume(make_manifest(name), name) for name in names])
    await node.pods.until(names, is_running)
    await asyncio.sleep(REST)
    return Round(tuple(await asyncio.gather(*(_change_one(node, name) for name in names))))


async def _change_one(node: NodeUnderTest, name: str) -> float:
    file = node.volume(name, "kubernetes.io~configmap", "config") / "key"
    if file.read_text() != "old":
        raise RuntimeError(f"{file} has something else before the change")
    began = time.time()
    await node.api.send("PATCH", f"{MAPS}/{name}", {"data": {"key": "new"}}, PatchType.MERGE)
    async with asyncio.timeout(PATIENCE):
        while True:
            if file.read_text() == "new":
                return time.time() - began
            await asyncio.sleep(_LOOK)


def _with_volume(manifest: dict[str, object], name: str) -> dict[str, object]:
    spec = manifest["spec"]
    assert isinstance(spec, dict)
    (container,) = spec["containers"]
    mounted = {**container, "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}]}
    volume = {"name": "config", "configMap": {"name": name}}
    return {**manifest, "spec": {**spec, "containers": [mounted], "volumes": [volume]}}
