"""Which cgroups the agent and the other processes of the machine live in (`kubeletCgroups`, `systemCgroups`), and when
the kernel kills the agent for memory (upstream: the system containers of the container manager).
"""

import logging
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.clock import Clock
from klet.host.errors import CgroupError

logger = logging.getLogger(__name__)

EVERY: Final = timedelta(minutes=1)
SELDOM: Final = timedelta(minutes=5)
"""Where only the OOM score is looked at."""
ROUNDS: Final = 10
"""Processes start others while they are moved."""


class AgentProcess(Protocol):
    """The agent itself, as a process; raises CgroupError."""

    async def place_agent(self, path: str) -> bool:
        """Move it into a cgroup; False if it is in it already, or not a process of the machine."""
        ...

    async def set_agent_oom_score(self, score: int) -> bool: ...


class MovableProcesses(Protocol):
    """The processes of the machine; raises CgroupError."""

    async def list_movable(self, path: str) -> frozenset[int]:
        """Return the processes of a cgroup itself that may be moved."""
        ...

    async def move(self, pid: int, *, source: str, target: str) -> bool:
        """Move one; False if it is gone by now."""
        ...


class AgentPlace:
    """Keeps the agent in its cgroup, if it is to have one, and its OOM score as configured."""

    def __init__(self, *, process: AgentProcess, cgroup: str, oom_score: int, clock: Clock) -> None:
        self._process = process
        self._cgroup = cgroup
        """The path; empty: the agent stays where it was started."""
        self._oom_score = oom_score
        self._clock = clock
        self._reported = ""

    async def run(self) -> None:
        while True:
            await self._look()
            await self._clock.sleep(EVERY if self._cgroup else SELDOM)

    async def _look(self) -> None:
        problems: list[str] = []
        try:
            if self._cgroup and await self._process.place_agent(self._cgroup):
                logger.info("The agent was moved into its cgroup", extra={"cgroup": self._cgroup})
        except CgroupError as error:
            problems.append(str(error))
        try:
            if await self._process.set_agent_oom_score(self._oom_score):
                logger.info("OOM score of the agent set", extra={"score": self._oom_score})
        except CgroupError as error:
            problems.append(str(error))
        # A process without the capability fails each time, for the same reason.
        problem = "; ".join(problems)
        if problem and problem != self._reported:
            logger.info("Failed to ensure process in container with oom score", extra={"error": problem})
        self._reported = problem


class SystemProcesses:
    """Moves the processes of the machine that have no cgroup of their own out of the root cgroup."""

    def __init__(self, *, processes: MovableProcesses, source: str, target: str, clock: Clock) -> None:
        self._processes = processes
        self._source = source
        self._target = target
        self._clock = clock
        self._reported = ""

    async def run(self) -> None:
        while True:
            problem = await self._move_all()
            if problem and problem != self._reported:
                logger.warning("Failed to ensure state", extra={"cgroup": self._target, "error": problem})
            self._reported = problem
            await self._clock.sleep(EVERY)

    async def _move_all(self) -> str:
        """Move what is there and what that starts meanwhile; return the last error, or nothing."""
        problem, moved = "", 0
        for _ in range(ROUNDS):
            problem, before = "", moved
            try:
                waiting = await self._processes.list_movable(self._source)
            except CgroupError as error:
                return f"failed to list PIDs for root: {error}"
            for pid in sorted(waiting):
                try:
                    moved += await self._processes.move(pid, source=self._source, target=self._target)
                except CgroupError as error:
                    problem = f'failed to move PID {pid} into the system container "{self._target}": {error}'
            if moved == before:
                break
        if moved:
            logger.info("Moving non-kernel processes", extra={"cgroup": self._target, "processes": moved})
        return problem
