"""Removes containers of a pod that goes on: what a new sandbox or a restart of all containers makes void."""

import logging
from datetime import datetime
from typing import Protocol

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.cri.errors import CriNotFound
from klet.cri.port import RuntimeService
from klet.errors import KletError
from klet.model.causes import CauseId
from klet.model.runtime import PodRuntimeStatus
from klet.runtime.actions import SHORTEST_ROUND, ContainerReset, KillReason, PodActions
from klet.runtime.gc import ContainerRemover
from klet.runtime.gc_plan import plan_init_pruning
from klet.runtime.kill.killer import PodKiller
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)


class StateSaver(Protocol):
    """Saves what the agent must know in its next run."""

    async def save_now(self) -> None:
        """Return when what is known now survives the loss of power; raises KletError if it cannot be saved."""
        ...


class ContainerStays(KletError):
    """The runtime still shows a container running that it reported as stopped."""


class PodRemovals:
    """Removes what is left of containers of one pod."""

    def __init__(
        self,
        *,
        runtime: RuntimeService,
        remover: ContainerRemover,
        killer: PodKiller,
        state: StateSaver,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._state = state
        self._remover = remover
        self._killer = killer
        self._clock = clock

    def waits_until(self, actions: PodActions) -> datetime | None:
        """Return when all containers may restart, if that is too soon now."""
        now, ready = self._clock.now(), actions.reset_not_before
        # One that started in the future did so before the clock was set back.
        return ready if ready is not None and now < ready <= now + SHORTEST_ROUND else None

    async def begin_reset(self) -> None:
        """Save the restart counts: once containers and their logs are removed, nothing else has them.

        Raises KletError; then nothing may be removed.
        """
        await self._state.save_now()

    async def reset(self, pod: Pod, status: PodRuntimeStatus, reset: ContainerReset, *, parent: CauseId | None) -> None:
        """Remove one container with its log, killed without grace if it may run; raises KletError if it stays."""
        if reset.kill:
            record = next(each for each in status.containers if each.id == reset.id)
            await self._killer.kill_container(
                pod, record, message="killing", reason=KillReason.RESTART_ALL, grace=0, parent=parent
            )
        if not await self._remover.remove(reset.id):
            raise ContainerStays(f"container {reset.id} still runs")

    async def purge_init(self, pod: Pod, status: PodRuntimeStatus) -> None:
        """Remove the init containers of the old sandbox: initialization starts over, and they must not count as done.

        Those that the status shows running have just been stopped with the pod. Their logs stay: the restart count of
        the next instance is read from them.
        """
        names = {container.name for container in pod.spec.init_containers}
        # Oldest first: if a removal fails, the newest record is still there and keeps the restart count right.
        for record in reversed(status.containers):
            if record.name in names:
                try:
                    await self._runtime.remove_container(cri.RemoveContainerRequest(container_id=record.id))
                except CriNotFound:
                    continue

    async def prune_init(self, pod: Pod, status: PodRuntimeStatus) -> None:
        """Remove all but the newest ended instance of each init container (pruneInitContainersBeforeStart)."""
        for record in plan_init_pruning(pod, status):
            try:
                await self._remover.remove(record.id)
            except KletError as error:
                logger.warning(
                    "A dead init container stays for now", extra={"container": record.id, "error": str(error)}
                )
