"""A machine with disks that only its sysfs and /dev show, and tools on a PATH that note what they are called with."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from klet.host.errors import FileMissing
from klet.host.storage.iscsi_sessions import IscsiSessions
from klet.host.storage.scsi import DiskTree
from klet.host.storage.tools import HostTools
from klet.testing.mounts import NotedMounts
from klet.volumes.storage_plugins import StoragePorts

_NOTE: Final = """\
#!/bin/sh
{{ printf '%s\\0' {name} "$@"; printf '\\n'; }} >>{log}
"""


class RecordingTools:
    """Programs in a directory. Each notes its arguments, then does what its script says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log = directory / "calls.log"
        directory.mkdir(parents=True)

    @property
    def tools(self) -> HostTools:
        # Scripts need cat, grep and the like; they come last.
        return HostTools(search=f"{self.directory}:/usr/bin:/bin")

    def add(self, name: str, script: str = "") -> None:
        """Have a program of this name, or change its script."""
        path = self.directory / name
        path.write_text(_NOTE.format(name=name, log=self._log) + script + "\n")
        path.chmod(0o755)

    def calls(self, name: str = "") -> list[list[str]]:
        """Return the calls so far, those of one program without its name, and forget them."""
        if not self._log.exists():
            return []
        lines = self._log.read_text().split("\0\n")[:-1]
        self._log.unlink()
        every = [line.split("\0") for line in lines]
        return [call[1:] for call in every if call[0] == name] if name else every


class DiskTrees:
    """Builds what the kernel and udev show of SCSI disks, below a root."""

    def __init__(self, root: Path) -> None:
        self.sys = root / "sys"
        self.dev = root / "dev"
        for path in (self.sys / "block", self.sys / "class" / "scsi_host", self.sys / "class" / "iscsi_host", self.dev):
            path.mkdir(parents=True)

    def add_disk(self, name: str, *, by_path: str = "", by_id: str = "") -> Path:
        device = self.sys / "block" / name / "device"
        device.mkdir(parents=True)
        (device / "delete").touch()
        found = self.dev / name
        found.touch()
        for kind, link in (("by-path", by_path), ("by-id", by_id)):
            if link:
                place = self.dev / "disk" / kind
                place.mkdir(parents=True, exist_ok=True)
                (place / link).symlink_to(found)
        return found

    def remove_disk(self, name: str) -> None:
        (self.sys / "block" / name / "device" / "delete").unlink()

    def add_multipath(self, name: str, members: Iterable[str]) -> Path:
        slaves = self.sys / "block" / name / "slaves"
        slaves.mkdir(parents=True)
        for member in members:
            (slaves / member).symlink_to(self.sys / "block" / member)
        (self.dev / name).touch()
        return self.dev / name

    def add_host(self, number: int) -> Path:
        """Add a SCSI host; return the file that has it look for disks."""
        host = self.sys / "class" / "scsi_host" / f"host{number}"
        host.mkdir()
        (host / "scan").touch()
        return host / "scan"

    def add_session(
        self, number: int, iqn: str, *, address: str, port: str = "3260", disks: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Add an iSCSI session with one connection, on a host of its own that has the same number."""
        if not (self.sys / "class" / "scsi_host" / f"host{number}").exists():
            self.add_host(number)
        session = f"session{number}"
        place = self.sys / "class" / "iscsi_host" / f"host{number}" / "device" / session
        attributes = place / "iscsi_session" / session
        attributes.mkdir(parents=True)
        (attributes / "targetname").write_text(f"{iqn}\n")
        connection = place / f"connection{number}:0" / "iscsi_connection" / f"connection{number}:0"
        connection.mkdir(parents=True)
        for kind in ("", "persistent_"):
            (connection / f"{kind}address").write_text(f"{address}\n")
            (connection / f"{kind}port").write_text(f"{port}\n")
        for lun, disk in disks:
            (place / f"target{number}:0:0" / f"{number}:0:0:{lun}" / "block" / disk).mkdir(parents=True)

    def session_place(self, number: int) -> Path:
        return self.sys / "class" / "iscsi_host" / f"host{number}"


class ToolMounts(NotedMounts):
    """Knows what the recorded `mount` has mounted, besides what it was asked to mount itself."""

    def __init__(self, machine: RecordingTools) -> None:
        super().__init__()
        self._mounted = machine.directory / "mounted"
        machine.add("mount", f'for target; do :; done; echo "$target" >>{self._mounted}')

    @property
    def by_tool(self) -> list[str]:
        return self._mounted.read_text().splitlines() if self._mounted.exists() else []

    def is_bound(self, path: Path) -> bool:
        if not path.exists():
            raise FileMissing(f"cannot look at {path}: it is missing", path=path)
        return str(path) in self.by_tool or super().is_bound(path)

    def unmount(self, target: Path, *, force: bool = False) -> bool:
        mounted = self.by_tool
        if str(target) not in mounted:
            return super().unmount(target, force=force)
        mounted.remove(str(target))
        self._mounted.write_text("".join(f"{line}\n" for line in mounted))
        return True


def storage_of(machine: RecordingTools, trees: DiskTrees) -> StoragePorts:
    return StoragePorts(
        tools=machine.tools,
        disks=DiskTree(sys=trees.sys, dev=trees.dev),
        sessions=IscsiSessions(sys=trees.sys),
    )
