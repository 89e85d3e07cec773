"""Defaults of volumes: an empty directory where no source is given, file modes, old disk settings."""

from typing import Final

from msgspec.structs import replace

from klet.api.defaults.containers import default_field_selector, map_tuple, pull_policy_for
from klet.api.volume import (
    DownwardAPIVolumeFile,
    EmptyDirVolumeSource,
    EphemeralVolumeSource,
    ProjectedVolumeSource,
    Volume,
    VolumeProjection,
)

FILE_MODE: Final = 0o644
TOKEN_SECONDS: Final = 3600


def default_volume(volume: Volume) -> Volume:
    if volume == Volume(name=volume.name):
        return replace(volume, empty_dir=EmptyDirVolumeSource())
    volume = _file_volumes(volume)
    if volume.host_path is not None and volume.host_path.type is None:
        volume = replace(volume, host_path=replace(volume.host_path, type=""))
    if volume.image is not None and not volume.image.pull_policy:
        policy = pull_policy_for(volume.image.reference)
        volume = replace(volume, image=replace(volume.image, pull_policy=policy))
    if volume.ephemeral is not None:
        volume = replace(volume, ephemeral=_ephemeral(volume.ephemeral))
    return _disks(volume)


def _file_volumes(volume: Volume) -> Volume:
    if volume.secret is not None and volume.secret.default_mode is None:
        volume = replace(volume, secret=replace(volume.secret, default_mode=FILE_MODE))
    if volume.config_map is not None and volume.config_map.default_mode is None:
        volume = replace(volume, config_map=replace(volume.config_map, default_mode=FILE_MODE))
    if (downward := volume.downward_api) is not None:
        mode = FILE_MODE if downward.default_mode is None else downward.default_mode
        files = map_tuple(downward.items, _downward_file)
        volume = replace(volume, downward_api=replace(downward, default_mode=mode, items=files))
    if volume.projected is not None:
        volume = replace(volume, projected=_projected(volume.projected))
    return volume


def _projected(source: ProjectedVolumeSource) -> ProjectedVolumeSource:
    mode = FILE_MODE if source.default_mode is None else source.default_mode
    return replace(source, default_mode=mode, sources=map_tuple(source.sources, _projection))


def _projection(projection: VolumeProjection) -> VolumeProjection:
    token, downward = projection.service_account_token, projection.downward_api
    if token is not None and token.expiration_seconds is None:
        token = replace(token, expiration_seconds=TOKEN_SECONDS)
        projection = replace(projection, service_account_token=token)
    if downward is not None:
        downward = replace(downward, items=map_tuple(downward.items, _downward_file))
        projection = replace(projection, downward_api=downward)
    return projection


def _downward_file(file: DownwardAPIVolumeFile) -> DownwardAPIVolumeFile:
    if file.field_ref is None or file.field_ref.api_version:
        return file
    return replace(file, field_ref=default_field_selector(file.field_ref))


def _ephemeral(source: EphemeralVolumeSource) -> EphemeralVolumeSource:
    template = source.volume_claim_template
    if template is None or template.spec.volume_mode is not None:
        return source
    spec = replace(template.spec, volume_mode="Filesystem")
    return replace(source, volume_claim_template=replace(template, spec=spec))


def _disks(volume: Volume) -> Volume:
    if (iscsi := volume.iscsi) is not None:
        volume = replace(volume, iscsi=replace(iscsi, iscsi_interface=iscsi.iscsi_interface or "default"))
    if (rbd := volume.rbd) is not None:
        rbd = replace(
            rbd,
            pool=rbd.pool or "rbd",
            user=rbd.user or "admin",
            keyring=rbd.keyring or "/etc/ceph/keyring",
        )
        volume = replace(volume, rbd=rbd)
    if (disk := volume.azure_disk) is not None:
        disk = replace(
            disk,
            caching_mode="ReadWrite" if disk.caching_mode is None else disk.caching_mode,
            kind="Shared" if disk.kind is None else disk.kind,
            fs_type="ext4" if disk.fs_type is None else disk.fs_type,
            read_only=bool(disk.read_only),
        )
        volume = replace(volume, azure_disk=disk)
    if (scale := volume.scale_io) is not None:
        mode, kind = scale.storage_mode or "ThinProvisioned", scale.fs_type or "xfs"
        volume = replace(volume, scale_io=replace(scale, storage_mode=mode, fs_type=kind))
    return volume
