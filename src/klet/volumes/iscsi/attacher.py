"""Logs in to iSCSI targets until the disk of a volume is there, and out of them when their last disk is gone."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, Protocol
from weakref import WeakValueDictionary

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.host.errors import ProcessError
from klet.host.processes import Completed
from klet.host.storage.iscsi_sessions import IscsiSessions
from klet.host.storage.scsi import DiskTree
from klet.host.storage.tools import NETWORK, exit_text, said
from klet.volumes.errors import VolumeSetupError
from klet.volumes.iscsi.commands import (
    NO_SESSION,
    NOTHING_FOUND,
    SESSION_EXISTS,
    delete_interface,
    device_pattern,
    new_interface,
    plan_login,
    plan_logout,
    read_interface,
    show_interface,
    shown_device,
    update_interface,
)
from klet.volumes.iscsi.disk import IscsiDisk

logger = logging.getLogger(__name__)

DEVICE_PATIENCE: Final = 30
"""Seconds until a disk has to be there once its target has been scanned for it."""
MULTIPATH_PATIENCE: Final = 10
"""Seconds until several ways to a disk have to be joined."""
_ROUNDS: Final = 5
_ENOUGH_ROUNDS: Final = 2
_ENOUGH_PATHS: Final = 2
_SECOND: Final = timedelta(seconds=1)
_ISCSIADM: Final = "iscsiadm"


class ToolRunner(Protocol):
    """Runs tools of the machine."""

    async def run(self, name: str, *arguments: str, timeout: timedelta = NETWORK) -> Completed: ...


class IscsiAttacher:
    """Attaches and detaches disks. One target is worked on by one call at a time."""

    def __init__(
        self, *, tools: ToolRunner, disks: DiskTree, sessions: IscsiSessions, threads: Threads, clock: Clock
    ) -> None:
        self._tools = tools
        self._disks = disks
        self._sessions = sessions
        self._threads = threads
        self._clock = clock
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def attach(self, disk: IscsiDisk, secret: Mapping[str, bytes]) -> str:
        """Return the path of the disk, that of the multipath device if there is one. Raises VolumeSetupError."""
        transport = await self._transport(disk)
        if disk.initiator:
            await self._clone_interface(disk)
        lock = self._locks.setdefault(disk.iqn, asyncio.Lock())
        async with lock:
            found, last_error = await self._find_paths(disk, secret, transport)
        if not found:
            if disk.initiator:
                await self._call(*delete_interface(disk.interface))
            raise VolumeSetupError(f"failed to get any path for iscsi disk, last err seen:\n{last_error}")
        if last_error:
            logger.warning("Not every path to an iSCSI disk works", extra={"volume": disk.volume, "error": last_error})
        return await self._joined(tuple(found.values()), several=len(disk.portals) > 1)

    async def detach(self, disk: IscsiDisk) -> None:
        """Remove the disk from this machine, and log out of its target if that has no other one here."""
        lock = self._locks.setdefault(disk.iqn, asyncio.Lock())
        async with lock:
            await self._remove_disks(disk)
            left = await self._threads.run(self._sessions.disks, disk.iqn)
            if any(names for names in left.values()):
                return
            for arguments in plan_logout(disk):
                done = await self._call(*arguments)
                if done.returncode not in {0, NO_SESSION, NOTHING_FOUND}:
                    logger.warning(
                        "iscsiadm failed while logging out",
                        extra={"volume": disk.volume, "error": f"{exit_text(done)}: {said(done)}"},
                    )
            hosts = await self._threads.run(self._sessions.portal_hosts, disk.iqn)
            if kept := sorted(hosts.keys() & set(disk.portals)):
                raise VolumeSetupError(f"iscsi: failed to detach disk: still logged in to {disk.iqn} at {kept}")

    async def _find_paths(
        self, disk: IscsiDisk, secret: Mapping[str, bytes], transport: str
    ) -> tuple[Mapping[str, str], str]:
        found: dict[str, str] = {}
        last_error = ""
        for round_number in range(1, _ROUNDS + 1):
            for portal in disk.portals:
                if portal in found:
                    continue
                try:
                    found[portal] = await self._find_path(disk, portal, secret, transport)
                except VolumeSetupError as error:
                    last_error = str(error)
            if len(found) == len(disk.portals):
                break
            if len(found) >= _ENOUGH_PATHS and round_number >= _ENOUGH_ROUNDS:
                break
        return found, last_error

    async def _find_path(self, disk: IscsiDisk, portal: str, secret: Mapping[str, bytes], transport: str) -> str:
        hosts = await self._threads.run(self._sessions.portal_hosts, disk.iqn)
        if portal not in hosts:
            await self._log_in(disk, portal, secret)
            hosts = await self._threads.run(self._sessions.portal_hosts, disk.iqn)
        if portal not in hosts:
            raise VolumeSetupError(f"Could not get SCSI host number for portal {portal} after logging in")
        await self._threads.run(self._disks.scan_unit, hosts[portal], disk.lun)
        pattern = device_pattern(disk, portal, transport=transport)
        for second in range(DEVICE_PATIENCE + 1):
            if paths := await self._threads.run(self._disks.by_path, pattern):
                return str(paths[0])
            if second < DEVICE_PATIENCE:
                await self._clock.sleep(_SECOND)
        shown = shown_device(disk, portal, transport=transport)
        raise VolumeSetupError(f"Timed out waiting for device at path {shown} after {DEVICE_PATIENCE}s")

    async def _log_in(self, disk: IscsiDisk, portal: str, secret: Mapping[str, bytes]) -> None:
        for step in plan_login(disk, portal, secret):
            done = await self._call(*step.arguments)
            if done.returncode == 0:
                continue
            if not step.failure:
                logger.debug("iscsiadm refused a setting", extra={"volume": disk.volume, "error": said(done)})
                continue
            if step.undo:
                await self._call(*step.undo)
            raise VolumeSetupError(f"{step.failure}: {said(done).strip()} ({exit_text(done)})")

    async def _joined(self, paths: tuple[str, ...], *, several: bool) -> str:
        """Return the multipath device of the paths; the first of them if none comes."""
        patience = MULTIPATH_PATIENCE if several else 1
        for second in range(patience):
            for path in paths:
                if device := await self._threads.run(self._disks.multipath_of, path):
                    return device
            if second < patience - 1:
                await self._clock.sleep(_SECOND)
        return paths[0]

    async def _transport(self, disk: IscsiDisk) -> str:
        done = await self._call(*show_interface(disk.base_interface))
        if done.returncode != 0:
            raise VolumeSetupError(f"iscsi: could not read iface {disk.base_interface} error: {said(done)}")
        return read_interface(done.stdout).get("iface.transport_name", "")

    async def _clone_interface(self, disk: IscsiDisk) -> None:
        shown = await self._call(*show_interface(disk.base_interface))
        if shown.returncode != 0:
            raise VolumeSetupError(f"iscsi: failed to show iface records: {said(shown)} ({exit_text(shown)})")
        settings = {**read_interface(shown.stdout), "iface.initiatorname": disk.initiator}
        made = await self._call(*new_interface(disk.interface))
        if made.returncode not in {0, SESSION_EXISTS}:
            raise VolumeSetupError(f"iscsi: failed to create new iface: {said(made)} ({exit_text(made)})")
        if made.returncode == SESSION_EXISTS:
            return
        for arguments in update_interface(disk.interface, settings):
            done = await self._call(*arguments)
            if done.returncode != 0:
                await self._call(*delete_interface(disk.interface))
                raise VolumeSetupError(f"iscsi: failed to update iface records: {said(done)} ({exit_text(done)})")

    async def _remove_disks(self, disk: IscsiDisk) -> None:
        names = (await self._threads.run(self._sessions.disks, disk.iqn)).get(disk.lun, ())
        paths = [f"/dev/{name}" for name in names]
        joined = {await self._threads.run(self._disks.multipath_of, path) for path in paths} - {""}
        for device in sorted(joined):
            try:
                done = await self._tools.run("multipath", "-f", device)
                problem = "" if done.returncode == 0 else f"{exit_text(done)}: {said(done)}"
            except ProcessError as error:
                problem = str(error)
            if problem:
                logger.warning("Cannot flush a multipath device", extra={"volume": device, "error": problem})
        for path in paths:
            await self._threads.run(self._disks.delete, path)

    async def _call(self, *arguments: str) -> Completed:
        try:
            return await self._tools.run(_ISCSIADM, *arguments, timeout=NETWORK)
        except ProcessError as error:
            raise VolumeSetupError(f"iscsi: {error}") from error
