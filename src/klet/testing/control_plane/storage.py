"""Claims that are bound to volumes of CSI drivers, as a provisioner and the controllers leave them at an API server."""

from collections.abc import Mapping
from typing import Any

from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.storage import PersistentVolume
from klet.kube.client import KubeClient

_MODES = ["ReadWriteOnce"]


async def create_bound_claim(
    client: KubeClient,
    name: str,
    source: Mapping[str, Any],
    *,
    mode: str = "Filesystem",
    size: str = "1Mi",
    claimed: str | None = None,
) -> PersistentVolumeClaim:
    """Create a claim and the volume of the same name that it is bound to; the claim's status may show another size."""
    spec = {
        "accessModes": _MODES,
        "resources": {"requests": {"storage": size}},
        "storageClassName": "",
        "volumeName": name,
        "volumeMode": mode,
    }
    made = convert(PersistentVolumeClaim, {"metadata": {"name": name}, "spec": spec})
    made = await client.create(made, "default")
    volume = {
        "accessModes": _MODES,
        "capacity": {"storage": size},
        "volumeMode": mode,
        "claimRef": {"namespace": "default", "name": name, "uid": made.metadata.uid},
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": source,
    }
    await client.create(convert(PersistentVolume, {"metadata": {"name": name}, "spec": volume}))
    status = {"phase": "Bound", "accessModes": _MODES, "capacity": {"storage": claimed or size}}
    return await client.patch(PersistentVolumeClaim, name, "default", patch={"status": status}, subresource="status")


def claim_volume(name: str) -> dict[str, Any]:
    """Return the part of a pod's volume that names a claim."""
    return {"persistentVolumeClaim": {"claimName": name}}
