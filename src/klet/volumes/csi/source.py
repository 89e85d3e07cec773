"""A CSI volume as the plugin sees it: of a PersistentVolume, or inline in the pod. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from klet.model.pods import PodUID
from klet.volumes.csi.places import PREFIX, inline_handle
from klet.volumes.csi.vol_data import EPHEMERAL, PERSISTENT
from klet.volumes.errors import VolumeSetupError
from klet.volumes.spec import SecretName, VolumeSpec

READ_WRITE_ONCE = "ReadWriteOnce"


class CsiSource(Struct, frozen=True, kw_only=True):
    """What a driver is to be given of a volume."""

    driver: str
    handle: str
    name: str
    """That of the spec."""
    is_inline: bool = False
    read_only: bool = False
    fs_type: str = ""
    attributes: Mapping[str, str] = {}
    access_modes: tuple[str, ...] = ()
    mount_options: tuple[str, ...] = ()
    stage_secret: SecretName | None = None
    publish_secret: SecretName | None = None
    expand_secret: SecretName | None = None
    is_migrated: bool = False

    @property
    def access_mode(self) -> str:
        """Return the one that counts: the first."""
        return self.access_modes[0] if self.access_modes else READ_WRITE_ONCE

    @property
    def lifecycle_mode(self) -> str:
        return EPHEMERAL if self.is_inline else PERSISTENT


def driver_of(spec: VolumeSpec) -> str | None:
    """Return the driver of a volume; None for one that is no CSI volume."""
    if spec.persistent is not None:
        return spec.persistent.spec.csi.driver if spec.persistent.spec.csi is not None else None
    return spec.volume.csi.driver if spec.volume.csi is not None else None


def persistent_source(spec: VolumeSpec) -> CsiSource:
    """Return the volume of a PersistentVolume; an error for one that has none."""
    if spec.persistent is None or spec.persistent.spec.csi is None:
        raise VolumeSetupError(f"{PREFIX}failed to get CSIPersistentVolumeSource of volume {spec.name}")
    found = spec.persistent.spec.csi
    if not found.volume_handle:
        raise VolumeSetupError(f"{PREFIX}volume {spec.name} has no volumeHandle")
    refs = (found.node_stage_secret_ref, found.node_publish_secret_ref, found.node_expand_secret_ref)
    stage, publish, expand = (SecretName(ref.namespace, ref.name) if ref is not None else None for ref in refs)
    return CsiSource(
        driver=found.driver,
        handle=found.volume_handle,
        name=spec.name,
        read_only=spec.read_only,
        fs_type=found.fs_type,
        attributes=found.volume_attributes,
        access_modes=spec.persistent.spec.access_modes,
        # As they are: neither sorted nor taken from the annotation.
        mount_options=spec.persistent.spec.mount_options,
        stage_secret=stage,
        publish_secret=publish,
        expand_secret=expand,
        is_migrated=spec.is_migrated,
    )


def source_of(spec: VolumeSpec, *, uid: PodUID, namespace: str) -> CsiSource:
    """Return the volume of a pod, which may be inline."""
    if spec.persistent is not None:
        return persistent_source(spec)
    found = spec.volume.csi
    if found is None:
        raise VolumeSetupError(f"{PREFIX}volume {spec.name} is no CSI volume")
    ref = found.node_publish_secret_ref
    return CsiSource(
        driver=found.driver,
        handle=inline_handle(uid, spec.name),
        name=spec.name,
        is_inline=True,
        read_only=found.read_only,
        fs_type=found.fs_type or "",
        attributes=found.volume_attributes,
        access_modes=(READ_WRITE_ONCE,),
        publish_secret=SecretName(namespace, ref.name) if ref is not None else None,
        is_migrated=spec.is_migrated,
    )
