"""Stops and removes every pod of a runtime: first the agent, whose manifests are gone, then what it leaves."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from klet.aio.clock import Clock
from klet.cli.progress import CommandProgress
from klet.cri.errors import CriError, CriNotFound
from klet.model.cri_labels import TERMINATION_GRACE_PERIOD
from klet.wire import cri_v1_pb2 as pb

DEFAULT_GRACE = 30
LONGEST_GRACE = 300
AGENT_SLACK = timedelta(seconds=10)
"""What the agent gets on top of the longest grace period before the runtime is asked directly."""
POLL = timedelta(milliseconds=100)


class Runtime(Protocol):
    """The part of the CRI that removes pods."""

    async def list_pod_sandbox(self, request: pb.ListPodSandboxRequest) -> pb.ListPodSandboxResponse: ...

    async def stop_pod_sandbox(self, request: pb.StopPodSandboxRequest) -> pb.StopPodSandboxResponse: ...

    async def remove_pod_sandbox(self, request: pb.RemovePodSandboxRequest) -> pb.RemovePodSandboxResponse: ...

    async def list_containers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse: ...

    async def stop_container(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse: ...


async def remove_pods(
    runtime: Runtime,
    *,
    agent_lives: Callable[[], bool],
    stop_agent: Callable[[], Awaitable[None]],
    progress: CommandProgress,
    clock: Clock,
) -> list[pb.PodSandbox]:
    """Remove all pods; returns the sandboxes that there were."""
    sandboxes = (await runtime.list_pod_sandbox(pb.ListPodSandboxRequest())).items
    containers = (await runtime.list_containers(pb.ListContainersRequest())).containers
    deadline = clock.monotonic() + longest_grace(containers) + AGENT_SLACK.total_seconds()
    while agent_lives() and clock.monotonic() < deadline:
        running = [item for item in await _sandboxes(runtime) if item.state == pb.SANDBOX_READY]
        if not running:
            break
        progress.waiting("Stopping " + ", ".join(sorted(item.metadata.name for item in running)))
        await clock.sleep(POLL)
    await stop_agent()
    left = await _sandboxes(runtime)
    running_containers = (await runtime.list_containers(pb.ListContainersRequest())).containers
    async with asyncio.TaskGroup() as group:
        for sandbox in left:
            own = [container for container in running_containers if container.pod_sandbox_id == sandbox.id]
            group.create_task(_remove(runtime, sandbox.id, own), name=sandbox.metadata.name)
    return [*sandboxes, *left]


def longest_grace(containers: Iterable[pb.Container]) -> int:
    """Return how long the slowest pod may take to stop, in seconds."""
    return max((grace_of(container) for container in containers), default=0)


def grace_of(container: pb.Container) -> int:
    """Return a container's grace period, which the agent wrote on it when it made it."""
    try:
        text = container.annotations.get(TERMINATION_GRACE_PERIOD)
        grace = int(text) if text is not None else None
    except ValueError:
        grace = None
    return min(DEFAULT_GRACE if grace is None else grace, LONGEST_GRACE)


async def _sandboxes(runtime: Runtime) -> Iterable[pb.PodSandbox]:
    return (await runtime.list_pod_sandbox(pb.ListPodSandboxRequest())).items


async def _remove(runtime: Runtime, sandbox: str, containers: Iterable[pb.Container]) -> None:
    # What the runtime refuses is left for the clean-up of processes, mounts and cgroups that follows.
    async with asyncio.TaskGroup() as group:
        for container in containers:
            if container.state == pb.CONTAINER_RUNNING:
                group.create_task(_stop_container(runtime, container), name=container.metadata.name)
    with suppress(CriError):
        await runtime.stop_pod_sandbox(pb.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        await runtime.remove_pod_sandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox))


async def _stop_container(runtime: Runtime, container: pb.Container) -> None:
    with suppress(CriError, CriNotFound):
        await runtime.stop_container(pb.StopContainerRequest(container_id=container.id, timeout=grace_of(container)))
