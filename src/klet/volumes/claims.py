"""Which PersistentVolume a claim of a pod leads to, or why to none (upstream: createVolumeSpec). Pure."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.api.claim import PersistentVolumeClaim
from klet.api.pod import Pod
from klet.api.stats import PVCReference
from klet.api.storage import PersistentVolume
from klet.api.validation.formats import dns_subdomain
from klet.api.volume import Volume
from klet.volumes.errors import ClaimError
from klet.volumes.spec import BLOCK, VolumeSpec
from klet.volumes.usage import device_volumes, mounted_volumes, used_volumes

PVC_PROTECTION: Final = "kubernetes.io/pvc-protection"
BOUND: Final = "Bound"
FILESYSTEM: Final = "Filesystem"


class ClaimUse(Struct, frozen=True):
    """The claim that an entry of a pod's volumes stands for."""

    namespace: str
    name: str
    read_only: bool = False
    is_ephemeral: bool = False
    """It is made for this pod alone (a generic ephemeral volume)."""

    @property
    def reference(self) -> PVCReference:
        """Return what the stats of a volume call it."""
        return PVCReference(name=self.name, namespace=self.namespace)

    def failed(self, reason: str) -> ClaimError:
        return ClaimError(f"error processing PVC {self.namespace}/{self.name}: {reason}")


def claim_of(pod: Pod, volume: Volume) -> ClaimUse | None:
    """Return the claim behind a volume of a pod; None for all other kinds.

    Entries with the same claim are one volume: the last one that a container uses decides whether it is read-only.
    """
    found = _claim(pod, volume)
    if found is None:
        return None
    used = used_volumes(pod)
    entries = (_claim(pod, each) for each in reversed(pod.spec.volumes) if each.name in used)
    last = next((each for each in entries if each is not None and each.name == found.name), found)
    return replace(found, read_only=last.read_only)


def check_name(use: ClaimUse) -> None:
    """Raise ClaimError for a name that no claim can have: it becomes a part of a URL."""
    if faults := dns_subdomain(use.name):
        raise use.failed(f"invalid claim name: {'; '.join(faults)}")


def check_claim(use: ClaimUse, pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Return the name of the volume that the claim is bound to; raises ClaimError."""
    meta = claim.metadata
    if meta.deletion_timestamp is not None and PVC_PROTECTION not in meta.finalizers:
        # With the finalizer it is only deleted once no pod uses it, so a pod that was scheduled before may have it.
        raise use.failed("PVC is being deleted")
    if claim.status.phase != BOUND:
        raise use.failed("PVC is not bound")
    if not (name := claim.spec.volume_name):
        raise use.failed("PVC has empty pvc.Spec.VolumeName")
    if use.is_ephemeral and not _is_controlled_by(claim, pod):
        raise ClaimError(
            f"PVC {meta.namespace}/{meta.name} was not created for pod "
            f"{pod.metadata.namespace}/{pod.metadata.name} (pod is not owner)"
        )
    if faults := dns_subdomain(name):
        # It becomes the name of a directory and a part of a URL.
        raise use.failed(f"invalid pvc.Spec.VolumeName: {'; '.join(faults)}")
    return name


def check_volume(use: ClaimUse, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
    """Raise ClaimError unless the volume is bound to the claim, too."""
    name, ref = claim.spec.volume_name, volume.spec.claim_ref
    if volume.metadata.name != name:
        raise use.failed(f"the API server returned another PV than {name}")
    if ref is None:
        raise use.failed(
            f"found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        )
    if ref.uid != claim.metadata.uid:
        raise use.failed(
            f"found PV object {name} but its pv.Spec.ClaimRef.UID {ref.uid} does not point to claim.UID "
            f"{claim.metadata.uid}"
        )


def build_spec(use: ClaimUse, pod: Pod, volume: Volume, persistent: PersistentVolume) -> VolumeSpec:
    """Return what the pod mounts; raises ClaimError if it uses the volume in a way that this cannot be used."""
    mode = persistent.spec.volume_mode
    if mode is None:
        raise ClaimError(f"cannot get volumeMode for volume: {volume.name}")
    if mode != FILESYSTEM and volume.name in mounted_volumes(pod):
        raise ClaimError(f"volume {volume.name} has volumeMode {mode}, but is specified in volumeMounts")
    if mode != BLOCK and volume.name in device_volumes(pod):
        raise ClaimError(f"volume {volume.name} has volumeMode {mode}, but is specified in volumeDevices")
    return VolumeSpec(volume, persistent, read_only=use.read_only)


def _claim(pod: Pod, volume: Volume) -> ClaimUse | None:
    if (source := volume.persistent_volume_claim) is not None:
        return ClaimUse(pod.metadata.namespace, source.claim_name, source.read_only)
    if volume.ephemeral is not None:
        return ClaimUse(pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}", is_ephemeral=True)
    return None


def _is_controlled_by(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    owners = (owner for owner in claim.metadata.owner_references if owner.controller)
    controller = next(owners, None)
    return (
        claim.metadata.namespace == pod.metadata.namespace
        and controller is not None
        and controller.uid == pod.metadata.uid
    )
