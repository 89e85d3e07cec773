"""What the CSIDriver object of a driver says about its volumes; None stands for no such object. Pure."""

from enum import StrEnum
from typing import Final

from klet.api.storage import CSIDriver
from klet.volumes.csi.source import CsiSource
from klet.volumes.csi.vol_data import PERSISTENT
from klet.volumes.errors import VolumeSetupError

_ONE_WRITER: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


class FsGroupPolicy(StrEnum):
    """When the files of a volume are given to the pod's group."""

    NONE = "None"
    FILE = "File"
    READ_WRITE_ONCE_WITH_FS_TYPE = "ReadWriteOnceWithFSType"


def requires_attach(driver: CSIDriver | None) -> bool:
    """Return whether a controller attaches its volumes."""
    return driver is None or driver.spec.attach_required is None or driver.spec.attach_required


def requires_republish(driver: CSIDriver | None) -> bool:
    return driver is not None and bool(driver.spec.requires_republish)


def supports_label(driver: CSIDriver | None) -> bool:
    """Return whether its volumes can be mounted with a SELinux label."""
    return driver is not None and bool(driver.spec.se_linux_mount)


def wants_pod_info(driver: CSIDriver | None) -> bool:
    return driver is not None and bool(driver.spec.pod_info_on_mount)


def has_tokens_in_secrets(driver: CSIDriver | None, *, is_enabled: bool) -> bool:
    """Return whether tokens go with the secrets; otherwise they are part of the volume context."""
    return is_enabled and driver is not None and bool(driver.spec.service_account_token_in_secrets)


def check_lifecycle_mode(driver: CSIDriver | None, name: str, mode: str) -> None:
    """Raise VolumeSetupError if the driver does not serve volumes of this kind."""
    if driver is None:
        if mode != PERSISTENT:
            raise VolumeSetupError(f'volume mode "{mode}" not supported by driver {name} (no CSIDriver object)')
        return
    modes = driver.spec.volume_lifecycle_modes or (PERSISTENT,)
    if mode not in modes:
        listed = " ".join(f'"{each}"' for each in modes)
        raise VolumeSetupError(f'volume mode "{mode}" not supported by driver {name} (only supports [{listed}])')


def fs_group_policy(driver: CSIDriver | None) -> FsGroupPolicy:
    if driver is None:
        return FsGroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE
    if not driver.spec.fs_group_policy:
        raise VolumeSetupError("expected valid fsGroupPolicy, received nil value or empty string")
    if driver.spec.fs_group_policy not in list(FsGroupPolicy):
        return FsGroupPolicy.NONE  # a policy of a newer API server: upstream changes no owner then, either
    return FsGroupPolicy(driver.spec.fs_group_policy)


def changes_ownership(source: CsiSource, policy: FsGroupPolicy, fs_group: int | None) -> bool:
    """Return whether the files are given to the pod's group by the agent, if the driver does not do it itself."""
    if fs_group is None or policy is FsGroupPolicy.NONE or source.read_only:
        return False
    if policy is FsGroupPolicy.FILE:
        return True
    return bool(source.fs_type) and (source.is_inline or not _ONE_WRITER.isdisjoint(source.access_modes))
