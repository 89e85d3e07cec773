"""What the machine says of itself, as the node's status needs it. Read once, where it does not change."""

import os
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.addresses import find_default_address, look_up_addresses
from klet.host.disk import filesystem_usage
from klet.host.errors import FileError, HostError
from klet.host.interfaces import read_local_addresses
from klet.host.machine import MachineReader
from klet.host.procfs import ProcReader
from klet.node.observation import PATIENCE, AddressFacts, IPAddress, Machine, SystemVersions, Unknown


class HostFacts:
    """The machine, its system, its disk and its addresses."""

    def __init__(self, *, root: Path, machine: MachineReader, proc: ProcReader, threads: Threads, clock: Clock) -> None:
        self._root = root
        self._reader = machine
        self._proc = proc
        self._threads = threads
        self._clock = clock
        self._machine: Machine | None = None
        self._storage: int | None = None
        self._looked_up: tuple[IPAddress, ...] = ()
        self._is_looking_up = False

    def machine(self) -> Machine | Unknown:
        if self._machine is None:
            try:
                self._machine = self._read_machine()
            except (KletError, ValueError) as error:
                return Unknown(f"error getting machine info: {error}")
        return self._machine

    def versions(self) -> SystemVersions | Unknown:
        try:
            return SystemVersions(self._proc.kernel_version(), self._reader.os_release().get("PRETTY_NAME", "Linux"))
        except HostError as error:
            return Unknown(f"error getting version info: {error}")

    async def storage(self) -> int | None:
        """The size of the filesystem with the root directory; None while it cannot be read."""
        if self._storage is None:
            try:
                self._storage = (await self._threads.run(filesystem_usage, self._root)).capacity
            except FileError:
                return None
        return self._storage

    async def addresses(self, *, name: str, prefer: int, lookup: bool) -> AddressFacts:
        """With `lookup`, the resolver is asked too; if that takes long, its last answer holds."""
        try:
            local = read_local_addresses()
        except HostError as error:
            return AddressFacts(default=Unknown(str(error)))
        if lookup:
            await first_of(self._ask_resolver(name), self._clock.sleep(PATIENCE))
        default = find_default_address(prefer=prefer)
        return AddressFacts(
            local=local,
            looked_up=self._looked_up if lookup else (),
            default=Unknown("no default routes found") if default is None else ip_address(default),
        )

    async def _ask_resolver(self, name: str) -> None:
        if not self._is_looking_up:
            self._is_looking_up = True
            await self._threads.run(self._look_up, name)

    def _look_up(self, name: str) -> None:
        """In a thread, which nobody may wait for any more: the answer is kept all the same."""
        try:
            self._looked_up = tuple(ip_address(text) for text in look_up_addresses(name))
        finally:
            self._is_looking_up = False

    def _read_machine(self) -> Machine:
        memory = self._proc.memory()
        return Machine(
            cpus=self._count_cpus(),
            memory=memory.total,
            hugepages=self._reader.hugepages(),
            swap=memory.swap_total,
            machine_id=_or_nothing(self._reader.machine_id),
            system_uuid=_or_nothing(self._reader.system_uuid),
            boot_id=self._proc.boot_id(),
        )

    def _count_cpus(self) -> int:
        try:
            return len(self._reader.online_cpus())
        except FileError:
            return os.cpu_count() or 1


def _or_nothing(read: Callable[[], str]) -> str:
    """A machine without identifiers is a machine all the same."""
    try:
        return read()
    except FileError:
        return ""
