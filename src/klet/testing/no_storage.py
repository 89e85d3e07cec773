"""A machine without disks, without servers, and without the tools for them."""

from pathlib import Path

from klet.host.storage.iscsi_sessions import IscsiSessions
from klet.host.storage.scsi import DiskTree
from klet.host.storage.tools import HostTools
from klet.volumes.storage_plugins import StoragePorts


def no_storage(root: Path) -> StoragePorts:
    """Return ports that find nothing: below a root, where there is nothing of that kind."""
    return StoragePorts(
        tools=HostTools(search=str(root / "no-tools")),
        disks=DiskTree(sys=root / "no-sys", dev=root / "no-dev"),
        sessions=IscsiSessions(sys=root / "no-sys"),
    )
