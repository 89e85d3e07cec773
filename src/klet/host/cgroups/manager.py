"""Cgroups as the rest of klet sees them: by name, with one implementation for both drivers and both versions.

Upstream's CgroupManager, and the killing half of its pod container manager.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import ParamSpec, Protocol, TypeVar

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.cgroups.hierarchy import Hierarchy
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.names import CgroupDriver, CgroupName, cgroup_path, parse_cgroup
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.usage import CgroupUsage
from klet.host.errors import CgroupBusy, CgroupError, CgroupMissing, CgroupNameError, FileError
from klet.metrics import Histogram

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

KILL_ROUNDS = 5
REMOVE_RETRIES = 10
FIRST_RETRY = timedelta(milliseconds=1)


class Units(Protocol):
    """What else must be notified of a cgroup: systemd, or nothing."""

    @property
    def driver(self) -> CgroupDriver: ...

    async def start(self, path: str) -> None: ...

    async def set(self, path: str, resources: CgroupResources) -> CgroupResources:
        """Announce the values; returns them as they are to be written to the files."""
        ...

    async def stop(self, path: str) -> None: ...


class NoUnits:
    """The cgroupfs driver: the files are all there is."""

    @property
    def driver(self) -> CgroupDriver:
        return CgroupDriver.CGROUPFS

    async def start(self, path: str) -> None: ...

    async def set(self, path: str, resources: CgroupResources) -> CgroupResources:  # noqa: ARG002 - nothing to notify
        return resources

    async def stop(self, path: str) -> None: ...


class LateUnits:
    """Units whose driver is known only when the runtime has said which it uses."""

    def __init__(self) -> None:
        self._chosen: Units | None = None

    def choose(self, units: Units) -> None:
        self._chosen = units

    @property
    def driver(self) -> CgroupDriver:
        return self._units.driver

    async def start(self, path: str) -> None:
        await self._units.start(path)

    async def set(self, path: str, resources: CgroupResources) -> CgroupResources:
        return await self._units.set(path, resources)

    async def stop(self, path: str) -> None:
        await self._units.stop(path)

    @property
    def _units(self) -> Units:
        if self._chosen is None:
            raise CgroupError("the cgroup driver is not known before the container runtime answers")
        return self._chosen


class CgroupManager:
    """Makes, writes, reads and removes cgroups."""

    def __init__(
        self, *, hierarchy: Hierarchy, units: Units, threads: Threads, clock: Clock, durations: Histogram
    ) -> None:
        self._durations = durations
        self._hierarchy = hierarchy
        self._units = units
        self._threads = threads
        self._clock = clock

    @property
    def mode(self) -> CgroupMode:
        return self._hierarchy.mode

    @property
    def driver(self) -> CgroupDriver:
        return self._units.driver

    def path(self, name: CgroupName) -> str:
        """Return the path below the cgroup mount, which is also the CRI's `cgroup_parent`."""
        return cgroup_path(name, self.driver)

    def parse(self, path: str) -> CgroupName:
        """Return the driver's reading of a path from the configuration or from the kernel."""
        return parse_cgroup(path, self.driver)

    def validate(self, name: CgroupName) -> None:
        """Raise CgroupMissing unless the cgroup is there with every controller."""
        if problem := self._hierarchy.check(self.path(name)):
            raise CgroupMissing(f"cgroup {name.quoted()} {problem}")

    def exists(self, name: CgroupName) -> bool:
        return not self._hierarchy.check(self.path(name))

    def seems_to_exist(self, name: CgroupName) -> bool:
        """Return whether a cgroup seems to exist. Cheaper: true also for one that is not whole."""
        return self._hierarchy.has(self.path(name))

    async def create(self, name: CgroupName, resources: CgroupResources) -> None:
        """Make the cgroup and write its values. Values that cannot be written are logged, not raised, as upstream."""
        path = self.path(name)
        with self._measured("create"):
            await self._units.start(path)
            try:
                written = await self._units.set(path, resources)
            except CgroupError as error:
                _warn_of_values(path, error)
                await self._run(self._hierarchy.create, path, resources)
            else:
                await self._run(self._make, path, resources, written)

    def _make(self, path: str, resources: CgroupResources, written: CgroupResources) -> None:
        self._hierarchy.create(path, resources)
        try:
            self._hierarchy.write(path, written)
        except (CgroupError, FileError) as error:
            _warn_of_values(path, error)

    async def update(self, name: CgroupName, resources: CgroupResources) -> None:
        """Write the values that are given."""
        path = self.path(name)
        with self._measured("update"):
            written = await self._units.set(path, resources)
            await self._run(self._hierarchy.write, path, written)

    async def read(self, name: CgroupName) -> CgroupResources:
        """Return the values as they are now; CPU weight comes back as shares, with loss."""
        return await self._run(self._hierarchy.read, self.path(name))

    async def usage(self, name: CgroupName) -> CgroupUsage:
        return await self._run(self._hierarchy.usage, self.path(name))

    async def children(self, name: CgroupName) -> frozenset[CgroupName]:
        found = await self._run(self._hierarchy.children, self.path(name))
        return frozenset(child for entry in found if (child := self._child(name, entry)))

    async def pids(self, name: CgroupName) -> frozenset[int]:
        """Return the processes of a cgroup and of all below it."""
        return await self._run(self._hierarchy.pids, self.path(name))

    async def kill_all(self, name: CgroupName) -> None:
        """Send SIGKILL to every process of a cgroup and below."""
        _refuse_root(name)
        if await self._run(self._hierarchy.kill, self.path(name)):
            return
        killed: set[int] = set()
        errors: list[str] = []
        for _ in range(KILL_ROUNDS):
            # Listed again each round: a process may have forked since.
            alive = await self.pids(name) - killed
            if not alive:
                return
            errors = []
            for pid in alive:
                if error := _kill(pid):
                    errors.append(error)
                else:
                    killed.add(pid)
        if errors:
            raise CgroupError(f"failed to kill all the processes attached to the {name} cgroups : {'; '.join(errors)}")

    async def destroy(self, name: CgroupName) -> None:
        """Remove a cgroup and all below it; one that is gone is fine. Kill its processes first."""
        _refuse_root(name)
        with self._measured("destroy"):
            await self._remove(name, self.path(name))

    async def _remove(self, name: CgroupName, path: str) -> None:
        await self._units.stop(path)
        wait = FIRST_RETRY
        for _ in range(REMOVE_RETRIES):
            try:
                await self._run(self._hierarchy.remove, path)
            except CgroupBusy:
                await self._clock.sleep(wait)
                wait *= 2
            except CgroupError as error:
                raise _not_deleted(name, error) from error
            else:
                return
        try:
            await self._run(self._hierarchy.remove, path)
        except CgroupBusy as error:
            raise CgroupBusy(str(_not_deleted(name, error))) from error

    @contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._durations.observe(self._clock.monotonic() - began, operation)

    def _child(self, name: CgroupName, entry: str) -> CgroupName | None:
        """Return the name of a directory below a cgroup; None for those that are not of the driver's making."""
        try:
            child = self.parse(entry) if self.driver is CgroupDriver.SYSTEMD else name.child(entry)
            return child if self.path(child) == f"{self.path(name).rstrip('/')}/{entry}" else None
        except CgroupNameError:
            return None

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._threads.run(call, *args, **kwargs)
        except FileError as error:
            raise CgroupError(str(error)) from error


def _warn_of_values(path: str, error: KletError) -> None:
    logger.warning("Values of a new cgroup not written", extra={"cgroup": path, "error": str(error)})


def _refuse_root(name: CgroupName) -> None:
    """Refuse the root cgroup, which holds the whole machine: no caller means it."""
    if not any(name.components):
        raise CgroupNameError("the root cgroup can neither be emptied nor removed")


def _kill(pid: int) -> str:
    """Return the error, or nothing; a process that is gone counts as killed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return ""
    except OSError as error:
        return f"cannot kill process {pid}: {error.strerror}"
    return ""


def _not_deleted(name: CgroupName, error: CgroupError) -> CgroupError:
    return CgroupError(f"failed to delete cgroup paths for {name} : {error}")
