"""One cache of the facts of the machine, which all parts of the agent share."""

from typing import Protocol

from klet.host.machine.info import MachineInfo, SystemVersions


class FactReader(Protocol):
    """Reads the facts of a machine; raises HostError."""

    def info(self) -> MachineInfo: ...

    def versions(self) -> SystemVersions: ...


class MachineCache:
    """Keeps `MachineInfo` from the first time that it could be read; a reading that failed is tried again.

    As upstream's kubelet, the agent sees memory, CPUs, swap or huge pages that come or go only after a restart: they
    are in limits and reservations that were computed at the start. The versions are read for each use, because an
    upgrade replaces os-release under a running agent.
    """

    def __init__(self, *, reader: FactReader) -> None:
        self._reader = reader
        self._info: MachineInfo | None = None

    def info(self) -> MachineInfo:
        if self._info is None:
            self._info = self._reader.info()
        return self._info

    def versions(self) -> SystemVersions:
        return self._reader.versions()
