"""Which cgroup is whose: by its path, and by the containers that the runtime has. Pure.

A cgroup is tied to a container by its base name, as upstream does: `<id>` with the cgroupfs driver, and the part after
the last dash of `cri-containerd-<id>.scope` with the systemd driver.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from klet.model.pods import PodUID
from klet.model.runtime import ContainerId, PodRuntimeStatus, SandboxId
from klet.model.stats import CgroupIdentity, CgroupLevel, SystemCgroups

_QOS: Final = frozenset({"burstable", "besteffort"})
_SLICE: Final = ".slice"
_SCOPE: Final = ".scope"


class CgroupOwner(Struct, frozen=True):
    """A container or sandbox of the runtime, as its cgroup is identified by it."""

    id: ContainerId
    uid: PodUID
    namespace: str
    pod: str
    container: str = ""
    """Empty for a sandbox."""
    image: str = ""


def find_owners(
    pods: Mapping[PodUID, PodRuntimeStatus], *, sandbox_images: Mapping[SandboxId, str]
) -> dict[str, CgroupOwner]:
    """Return the containers and sandboxes of the runtime, by id."""
    found: dict[str, CgroupOwner] = {}
    for uid, pod in pods.items():
        for sandbox in pod.sandboxes:
            found[sandbox.id] = CgroupOwner(
                ContainerId(sandbox.id), uid, pod.namespace, pod.name, image=sandbox_images.get(sandbox.id, "")
            )
        for record in pod.containers:
            found[record.id] = CgroupOwner(record.id, uid, pod.namespace, pod.name, record.name, record.image)
    return found


def identify(
    path: str,
    *,
    system: SystemCgroups,
    owners: Mapping[str, CgroupOwner],
    pods: Mapping[PodUID, PodRuntimeStatus],
) -> CgroupIdentity:
    """Return what a cgroup is to the node."""
    if path == "/":
        return CgroupIdentity(path=path, level=CgroupLevel.ROOT)
    base = path.rpartition("/")[2]
    owner = owners.get(base.removesuffix(_SCOPE).rpartition("-")[2])
    if owner is not None and "conmon" not in base:
        return CgroupIdentity(
            path=path,
            level=CgroupLevel.CONTAINER if owner.container else CgroupLevel.SANDBOX,
            container_id=owner.id,
            image=owner.image,
            namespace=owner.namespace,
            pod=owner.pod,
            pod_uid=owner.uid,
            container=owner.container,
        )
    if path == system.pods:
        return CgroupIdentity(path=path, level=CgroupLevel.PODS)
    if not system.pods or not path.startswith(f"{system.pods.rstrip('/')}/"):
        return CgroupIdentity(path=path, level=CgroupLevel.SYSTEM)
    return _identify_pod(path, base, depth=path.count("/") - system.pods.count("/"), pods=pods)


def _identify_pod(path: str, base: str, *, depth: int, pods: Mapping[PodUID, PodRuntimeStatus]) -> CgroupIdentity:
    """Identify a cgroup below that of all pods: `burstable`, `pod<uid>`, or systemd's slices of them."""
    name = base
    if base.endswith(_SLICE):
        name = base.removesuffix(_SLICE).rpartition("-")[2].replace("_", "-")
    if depth == 1 and name in _QOS:
        return CgroupIdentity(path=path, level=CgroupLevel.QOS)
    uid = name.removeprefix("pod")
    if depth > 2 or uid in {"", name} or not isinstance(uid, PodUID):
        return CgroupIdentity(path=path, level=CgroupLevel.OTHER)
    known = pods.get(uid)
    return CgroupIdentity(
        path=path,
        level=CgroupLevel.POD,
        pod_uid=uid,
        namespace=known.namespace if known is not None else "",
        pod=known.name if known is not None else "",
    )
