"""What an iSCSI volume is called, in paths and on disk, and reading that back. Pure."""

import re
from typing import Final

from msgspec import DecodeError, Struct, ValidationError, field, json
from msgspec.structs import replace

from klet.api.volume import Volume
from klet.api.volume_intree import ISCSIPersistentVolumeSource, ISCSIVolumeSource
from klet.host.files import is_plain_name
from klet.volumes.errors import VolumeSetupError
from klet.volumes.spec import SecretName, VolumeSpec

DIRECTORY: Final = "kubernetes.io/iscsi"
DEVICES: Final = "volumeDevices"
RECORD: Final = "iscsi.json"
"""The file that says how a disk was attached, in the directory that it is then mounted on."""
NO_PORT: Final = ".no-port"
"""Ends the name of an empty file beside the directory of a disk whose portal is named without a port. The record cannot
say so: the disk is mounted over it."""
LONGEST_RECORD: Final = 64 << 10
DEFAULT_INTERFACE: Final = "default"
_DEFAULT_PORT: Final = "3260"
_INTERFACE_PREFIX: Final = "iface-"
_DISK: Final = re.compile(r"([^-/]+)-((?:iqn|eui|naa)\.[^/]+)-lun-([0-9]{1,10})")


class IscsiDisk(Struct, frozen=True, kw_only=True):
    """One logical unit of a target, and the ways to it."""

    volume: str
    portals: tuple[str, ...]
    iqn: str
    lun: int
    base_interface: str = DEFAULT_INTERFACE
    initiator: str = ""
    """If set, the interface is a copy of the base with this name."""
    chap_discovery: bool = False
    chap_session: bool = False
    secret: SecretName | None = None

    @property
    def interface(self) -> str:
        return f"{self.portals[0]}:{self.volume}" if self.initiator else self.base_interface

    @property
    def place(self) -> tuple[str, str]:
        """Return the names of its directory below that of the plugin."""
        return (f"{_INTERFACE_PREFIX}{self.interface}", f"{self.portals[0]}-{self.iqn}-lun-{self.lun}")


class IscsiRecord(Struct, frozen=True, kw_only=True):
    """What is kept of an attached disk to detach it (upstream's iscsi.json)."""

    vol_name: str = field(name="VolName", default="")
    portals: tuple[str, ...] = field(name="Portals", default=())
    iqn: str = field(name="Iqn", default="")
    lun: str = field(name="Lun", default="")
    init_iface: str = field(name="InitIface", default="")
    iface: str = field(name="Iface", default="")
    initiator_name: str = field(name="InitiatorName", default="")


def full_portal(portal: str) -> str:
    """Return a portal with its port."""
    return portal if ":" in portal else f"{portal}:{_DEFAULT_PORT}"


def iscsi_disk(spec: VolumeSpec, *, namespace: str) -> IscsiDisk:
    """Return the disk of a volume; raises VolumeSetupError for names that cannot be parts of a path.

    The secret of an inline volume is one of the pod's namespace, unless a PersistentVolume names another.
    """
    if spec.persistent is not None and (claimed := spec.persistent.spec.iscsi) is not None:
        reference = claimed.secret_ref
        secret = None if reference is None else SecretName(reference.namespace or namespace, reference.name)
    elif (inline := spec.volume.iscsi) is not None:
        secret = None if inline.secret_ref is None else SecretName(namespace, inline.secret_ref.name)
    else:
        raise VolumeSetupError(f"Spec {spec.name} does not reference an ISCSI volume type")
    source = claimed if spec.persistent is not None and claimed is not None else spec.volume.iscsi
    assert source is not None
    portals = [full_portal(portal) for portal in (source.target_portal, *source.portals)]
    disk = IscsiDisk(
        volume=spec.name,
        portals=tuple(dict.fromkeys(portals)),
        iqn=source.iqn,
        lun=source.lun,
        base_interface=source.iscsi_interface or DEFAULT_INTERFACE,
        initiator=source.initiator_name or "",
        chap_discovery=source.chap_auth_discovery,
        chap_session=source.chap_auth_session,
        secret=secret,
    )
    _check(disk)
    return disk


def device_name(spec: VolumeSpec) -> str:
    """Return what distinguishes a disk from all others on the node, as the controller has it."""
    source = _source(spec)
    return f"{source.target_portal}:{source.iqn}:{source.lun}"


def has_port(spec: VolumeSpec) -> bool:
    """Return whether the portal of a volume is named with its port."""
    portal = _source(spec).target_portal
    return full_portal(portal) == portal


def without_port(volume: Volume) -> Volume:
    """Return a volume of a place with its portal as a volume has it that names no port."""
    assert volume.iscsi is not None
    portal = volume.iscsi.target_portal.removesuffix(f":{_DEFAULT_PORT}")
    return replace(volume, iscsi=replace(volume.iscsi, target_portal=portal))


def _source(spec: VolumeSpec) -> ISCSIVolumeSource | ISCSIPersistentVolumeSource:
    source = spec.volume.iscsi if spec.persistent is None else spec.persistent.spec.iscsi
    if source is None:
        raise VolumeSetupError(f"Spec {spec.name} does not reference an ISCSI volume type")
    return source


def disk_of_place(interface: str, name: str) -> IscsiDisk:
    """Return the disk that the directories `iface-<interface>/<portal>-<iqn>-lun-<n>` are named after."""
    matched = _DISK.fullmatch(name)
    if matched is None or not interface.startswith(_INTERFACE_PREFIX) or interface == _INTERFACE_PREFIX:
        raise VolumeSetupError(f"{interface[:255]}/{name[:255]} is no place of an iSCSI disk")
    return IscsiDisk(
        volume="",
        portals=(matched[1],),
        iqn=matched[2],
        lun=int(matched[3]),
        base_interface=interface.removeprefix(_INTERFACE_PREFIX),
    )


def volume_of_place(volume: str, interface: str, name: str) -> Volume:
    """Return the volume that was mounted at a place, good enough to name it and to take it down."""
    disk = disk_of_place(interface, name)
    source = ISCSIVolumeSource(
        target_portal=disk.portals[0], iqn=disk.iqn, lun=disk.lun, iscsi_interface=disk.base_interface
    )
    return Volume(name=volume, iscsi=source)


def encode_record(disk: IscsiDisk) -> bytes:
    return json.encode(
        IscsiRecord(
            vol_name=disk.volume,
            portals=disk.portals,
            iqn=disk.iqn,
            lun=str(disk.lun),
            init_iface=disk.base_interface,
            iface=disk.interface,
            initiator_name=disk.initiator,
        )
    )


def decode_record(data: bytes) -> IscsiDisk | None:
    """Return the disk of a record; None if it is none, or does not say enough."""
    try:
        record = json.decode(data, type=IscsiRecord)
    except (DecodeError, ValidationError):
        return None
    if not record.portals or not record.iqn or not record.lun.isascii() or not record.lun.isdigit():
        return None
    if len(record.lun) > _LONGEST_LUN:
        return None
    return IscsiDisk(
        volume=record.vol_name,
        portals=tuple(dict.fromkeys(record.portals)),
        iqn=record.iqn,
        lun=int(record.lun),
        base_interface=record.init_iface or record.iface or DEFAULT_INTERFACE,
        initiator=record.initiator_name,
    )


_LONGEST_LUN: Final = 10


def _check(disk: IscsiDisk) -> None:
    names = (*disk.place, *disk.portals, disk.iqn)
    for name in names:
        # They are also arguments of iscsiadm, which takes what begins with a dash for an option.
        if not is_plain_name(name) or name.startswith("-") or not name.isprintable():
            raise VolumeSetupError(f"{name[:255]!r} cannot be part of the name of an iSCSI disk")
    if disk.lun < 0:
        raise VolumeSetupError(f"{disk.lun} is no logical unit")
