"""What a volume manager asks an API server for, kept in memory: this node, claims and their volumes."""

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from klet.aio.broadcast import Broadcast, Subscription
from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.node import Node
from klet.api.storage import PersistentVolume
from klet.errors import KletError
from klet.kube.informer import ObjectKey
from klet.model.objects import ObjectMissing

_NODE = ObjectKey("", "n1")


class VolumeCluster:
    """A test says what there is, and sees what was asked for and changed."""

    def __init__(self) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.volumes: dict[str, dict[str, Any]] = {}
        self.patches: list[Mapping[str, Any]] = []
        self.reads: list[str] = []
        self.seen: Node | None = None
        """This node as the watch shows it."""
        self.live: Node | None = None
        """This node as the API server has it; None if it does not answer."""
        self.patch_error: KletError | None = None
        self.gate: asyncio.Event | None = None
        """What a read of the node waits for."""
        self._changes = Broadcast[ObjectKey]()

    def attach(self, *names: str, labels: Mapping[str, str] | None = None) -> None:
        """Be the controller: the node's status lists these volumes now, and everybody sees it."""
        self.be_live(*names, labels=labels)
        self.show()

    def be_live(self, *names: str, labels: Mapping[str, str] | None = None) -> None:
        """Change the node without the watch showing it."""
        attached = [{"name": name, "devicePath": f"/dev/by-status/{name.rpartition('/')[2]}"} for name in names]
        body = {"metadata": {"name": "n1", "labels": labels or {}}, "status": {"volumesAttached": attached}}
        self.live = convert(Node, body)

    def show(self) -> None:
        self.seen = self.live
        self._changes.send(_NODE)

    def add_claim(
        self,
        name: str = "c",
        *,
        disk: str = "a",
        size: str = "1Gi",
        claimed: str | None = None,
        mode: str = "Filesystem",
        access: str = "ReadWriteOnce",
    ) -> None:
        """Add a claim that is bound to a disk. `claimed` is what its status says of its size."""
        meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "7"}
        self.claims[name] = {
            "metadata": meta,
            "spec": {
                "volumeName": f"pv-{disk}",
                "accessModes": [access],
                "resources": {"requests": {"storage": size}},
            },
            "status": {"phase": "Bound", "capacity": {"storage": claimed or size}},
        }
        self.volumes[f"pv-{disk}"] = {
            "metadata": {"name": f"pv-{disk}", "uid": f"uid-pv-{disk}"},
            "spec": {
                "gcePersistentDisk": {"pdName": disk},
                "capacity": {"storage": size},
                "accessModes": [access],
                "volumeMode": mode,
                "claimRef": {"namespace": "ns", "name": name, "uid": f"uid-{name}"},
            },
        }

    def find(self) -> Node | None:
        return self.seen

    def changes(self) -> Subscription[ObjectKey]:
        return self._changes.subscribe()

    async def read(self) -> Node:
        self.reads.append("node")
        if self.gate is not None:
            await self.gate.wait()
        if self.live is None:
            raise KletError("the API server does not answer")
        return self.live

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:
        self.reads.append(f"{namespace}/{name}")
        if name not in self.claims:
            raise ObjectMissing(f'persistentvolumeclaims "{name}" not found')
        return convert(PersistentVolumeClaim, self.claims[name])

    async def persistent_volume(self, name: str) -> PersistentVolume:
        self.reads.append(name)
        if name not in self.volumes:
            raise ObjectMissing(f'persistentvolumes "{name}" not found')
        return convert(PersistentVolume, self.volumes[name])

    async def patch_claim_status(self, namespace: str, name: str, patch: Mapping[str, Any]) -> PersistentVolumeClaim:
        """Merge as the API server does, as far as the expansion of volumes needs it."""
        if self.patch_error is not None:
            raise self.patch_error
        self.patches.append(to_builtins(patch))
        status = self.claims[name]["status"]
        for key, value in patch["status"].items():
            if key == "conditions":
                kept = {each["type"]: each for each in status.get("conditions", ())}
                for each in value:
                    if each.get("$patch") == "delete":
                        kept.pop(each["type"], None)
                    else:
                        kept[each["type"]] = each
                status[key] = list(kept.values())
                continue
            merged = {**status.get(key, {}), **value}
            status[key] = {name: each for name, each in merged.items() if each is not None}
        return await self.claim(namespace, name)
