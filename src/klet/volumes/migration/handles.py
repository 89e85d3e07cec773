"""The identifiers of in-tree volumes as the CSI drivers spell them. Pure."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from klet.volumes.errors import VolumeSetupError

UNSPECIFIED: Final = "UNSPECIFIED"
_AWS: Final = "aws://"
_ACCOUNT_PREFIX, _ACCOUNT_SUFFIX = "azure-storage-account-", "-secret"
_ZONE_PARTS: Final = 3


def ebs_handle(volume: str) -> str:
    """Return `vol-…` of `aws://<zone>/vol-…`, `aws:///vol-…`, or of what is one already."""
    if not volume.startswith(_AWS):
        return volume
    try:
        found = urlsplit(volume).path.strip("/")
    except ValueError as error:
        raise _failure(f"Invalid disk name ({volume[:256]}): {error}") from error
    if not found.startswith("vol-") or "/" in found:
        raise _failure(f"Invalid format for AWS volume ({volume[:256]})")
    return found


def _failure(why: str) -> VolumeSetupError:
    return VolumeSetupError(f"failed to translate Kubernetes ID to EBS Volume ID {why}")


def gce_handle(disk: str, zones: Sequence[str]) -> str:
    """Return the handle of a disk that is in these zones; one empty zone stands for an unknown one."""
    if len(zones) > 1:
        return f"projects/{UNSPECIFIED}/regions/{_region_of(zones)}/disks/{disk}"
    zone = zones[0] if zones and zones[0] else UNSPECIFIED
    return f"projects/{UNSPECIFIED}/zones/{zone}/disks/{disk}"


def azure_file_handle(*, secret: str, share: str, name: str, namespace: str, resource_group: str = "") -> str:
    return "#".join((resource_group, azure_account(secret), share, name, namespace))


def azure_account(secret: str) -> str:
    """Return the storage account that a secret is named after; the secret's own name if it is named otherwise."""
    start = secret.find(_ACCOUNT_PREFIX)
    end = secret.rfind(_ACCOUNT_SUFFIX)
    account = secret[start + len(_ACCOUNT_PREFIX) : end] if end > start >= 0 else ""
    return account or secret


def _region_of(zones: Sequence[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != _ZONE_PARTS:
            raise VolumeSetupError(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone[:256]}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        found = " ".join(sorted(regions))
        raise VolumeSetupError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{found}]"
        )
    return regions.pop()
