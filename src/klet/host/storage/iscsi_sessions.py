"""The iSCSI sessions of this machine, as sysfs shows them (upstream: GetISCSIPortalHostMapForTarget). It blocks."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from klet.host.errors import file_error

_HOST: Final = re.compile(r"host([0-9]{1,9})")
_SESSION: Final = re.compile(r"session[0-9]{1,9}")
_CONNECTION: Final = re.compile(r"connection[0-9]{1,9}:[0-9]{1,9}")
_DISK_OF: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,19})")
_TARGET: Final = re.compile(r"target[0-9]{1,9}:[0-9]{1,9}:[0-9]{1,9}")
_LONGEST: Final = 4096


def join_portal(address: str, port: str) -> str:
    """Return a portal as volumes name it: an IPv6 address is in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class IscsiSessions:
    """Which portals this machine is logged in to, and which disks that gave it."""

    def __init__(self, *, sys: Path = Path("/sys")) -> None:
        self._hosts = sys / "class" / "iscsi_host"

    def portal_hosts(self, iqn: str) -> Mapping[str, int]:
        """Return the SCSI hosts of a target by the portals that lead to it."""
        found: dict[str, int] = {}
        for host, session in self._sessions(iqn):
            for connection in _names(session, _CONNECTION):
                place = session / connection / "iscsi_connection" / connection
                for kind in ("", "persistent_"):
                    address, port = _read(place / f"{kind}address"), _read(place / f"{kind}port")
                    if address and port:
                        found[join_portal(address.strip("[]"), port)] = host
        return found

    def disks(self, iqn: str) -> Mapping[int, tuple[str, ...]]:
        """Return the names of the disks of a target by logical unit: several if there are several sessions."""
        found: dict[int, list[str]] = {}
        for _, session in self._sessions(iqn):
            for target in _names(session, _TARGET):
                for address in _names(session / target, _DISK_OF):
                    matched = _DISK_OF.fullmatch(address)
                    assert matched is not None
                    disks = found.setdefault(int(matched[4]), [])
                    disks.extend(_list(session / target / address / "block"))
        return {lun: tuple(sorted(names)) for lun, names in found.items()}

    def _sessions(self, iqn: str) -> list[tuple[int, Path]]:
        found = []
        for host in _names(self._hosts, _HOST):
            place = self._hosts / host / "device"
            for session in _names(place, _SESSION):
                if _read(place / session / "iscsi_session" / session / "targetname") == iqn:
                    matched = _HOST.fullmatch(host)
                    assert matched is not None
                    found.append((int(matched[1]), place / session))
        return found


def _names(directory: Path, pattern: re.Pattern[str]) -> list[str]:
    return [name for name in _list(directory) if pattern.fullmatch(name)]


def _list(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise file_error("list", directory, error) from error


def _read(path: Path) -> str:
    """Return the text of an attribute; empty if it is not there, or not readable while a session comes and goes."""
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST).decode(errors="replace").strip()
    except OSError:
        return ""
