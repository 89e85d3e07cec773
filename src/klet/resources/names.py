"""Where pods and QoS classes have their cgroups. Pure."""

from klet.api.pod import Pod
from klet.host.cgroups.names import CgroupName
from klet.model.pods import PodUID
from klet.model.qos import QosClass, qos_of

KUBEPODS = "kubepods"
POD_PREFIX = "pod"
_BELOW: dict[QosClass, tuple[str, ...]] = {
    QosClass.GUARANTEED: (),
    QosClass.BURSTABLE: ("burstable",),
    QosClass.BEST_EFFORT: ("besteffort",),
}


def pods_root(root: CgroupName) -> CgroupName:
    """Return the cgroup of all pods below the configured root."""
    return root.child(KUBEPODS)


def qos_cgroup(kubepods: CgroupName, qos: QosClass) -> CgroupName:
    """Return the cgroup of a class; guaranteed pods lie directly in the cgroup of all pods."""
    return kubepods.child(*_BELOW[qos])


def pod_cgroup(kubepods: CgroupName, pod: Pod) -> CgroupName:
    return qos_cgroup(kubepods, qos_of(pod)).child(f"{POD_PREFIX}{pod.metadata.uid}")


def pod_of(kubepods: CgroupName, name: CgroupName) -> PodUID | None:
    """Return the pod that a cgroup belongs to, if it is a pod's own."""
    depth = len(kubepods.components)
    uid = name.last.removeprefix(POD_PREFIX)
    if uid in {"", name.last} or name.components[:depth] != kubepods.components:
        return None
    return uid if isinstance(uid, PodUID) and name.components[depth:-1] in _BELOW.values() else None
