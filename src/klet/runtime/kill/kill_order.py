"""When the containers of a pod end: in which order, and how long each gets.

Sidecars serve the others, so they outlive them: each waits for the regular containers and for the sidecar after it
(terminationOrdering). The grace period comes from deletion, override, probe and pod (setTerminationGracePeriod).
"""

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta

from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.container import Container
from klet.api.pod import Pod
from klet.api.pod_resources import is_sidecar
from klet.model.pods import LONGEST_GRACE
from klet.runtime.actions import KillReason

MINIMUM_GRACE = 2
"""Seconds. The runtime never gets less: a container must have the chance to handle its signal."""


def base_grace(pod: Pod, container: Container | None, reason: KillReason) -> int:
    """Return the grace period before an override, in seconds."""
    return min(_granted(pod, container, reason), LONGEST_GRACE)


def _granted(pod: Pod, container: Container | None, reason: KillReason) -> int:
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    own = pod.spec.termination_grace_period_seconds
    if own is None:
        return MINIMUM_GRACE
    probe = None
    if container is not None and reason is KillReason.STARTUP_PROBE:
        probe = container.startup_probe
    if container is not None and reason is KillReason.LIVENESS_PROBE:
        probe = container.liveness_probe
    if probe is not None and probe.termination_grace_period_seconds is not None:
        return probe.termination_grace_period_seconds
    return own


def whole_seconds(elapsed: float) -> int:
    """Return the seconds that have passed, as grace periods count them: a second that has begun does not count.

    A timer may fire a hair before its time; the second it was set for has passed all the same.
    """
    return int(elapsed + 0.001)


def stop_timeout(grace: int, override: int | None, *, spent: int = 0) -> int:
    """Return the seconds for the CRI: the override if there is one, less what hooks used, never below the minimum."""
    return max((grace if override is None else override) - spent, MINIMUM_GRACE)


def plan_kill_order(pod: Pod, running: Collection[str]) -> dict[str, frozenset[str]]:
    """Return for each container that must wait the running containers that must end before it is stopped."""
    regular = frozenset(container.name for container in pod.spec.containers if container.name in running)
    waits: dict[str, frozenset[str]] = {}
    later: frozenset[str] = frozenset()
    for container in reversed(pod.spec.init_containers):
        if not is_sidecar(container):
            continue
        if container.name in running and (regular | later):
            waits[container.name] = regular | later
        # One that does not run counts as ended; what comes after it is not considered.
        later = frozenset({container.name} & set(running))
    return waits


class KillTurns:
    """One stop of a pod: which containers wait for which, and which have ended."""

    def __init__(self, *, waits: Mapping[str, frozenset[str]], clock: Clock) -> None:
        self._waits = waits
        self._clock = clock
        self._ended = {name: asyncio.Event() for names in waits.values() for name in names}

    async def wait(self, name: str, *, at_most: int) -> int:
        """Wait for this container's turn or the end of the time; return how many whole seconds that took."""
        if at_most <= 0 or not self._waits.get(name):
            return 0
        started = self._clock.monotonic()
        await first_of(self._until_turn(name), self._clock.sleep(timedelta(seconds=at_most)))
        return whole_seconds(self._clock.monotonic() - started)

    def ended(self, name: str) -> None:
        if name in self._ended:
            self._ended[name].set()

    async def _until_turn(self, name: str) -> None:
        for other in self._waits[name]:
            await self._ended[other].wait()
