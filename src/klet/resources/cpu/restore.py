"""What a previous run of the agent, klet's or upstream's, left of the CPU manager (`cpu_manager_state`)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeAlias

from klet.checkpoint.errors import CheckpointError
from klet.checkpoint.file import Found, StateStore
from klet.checkpoint.upstream import CpuManagerState
from klet.cri.errors import CriError
from klet.errors import KletError
from klet.model.pods import PodUID
from klet.resources.cpu.settings import CpuManagerSettings
from klet.resources.cpu.state import (
    ContainerRef,
    CpuState,
    CpuStateMismatch,
    check_state,
    read_state,
    write_state,
)
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

FILE: Final = "cpu_manager_state"
ContainersById: TypeAlias = Callable[[], Awaitable[Mapping[str, ContainerRef]]]


class CpuStateRefused(KletError):
    """State that only an administrator may give up: containers may still run on what it says."""


async def restore_cpu_state(
    store: StateStore[CpuManagerState], settings: CpuManagerSettings, *, path: str, containers: ContainersById
) -> CpuState:
    """Return who has which CPUs, and write what the next run has to know; raises CpuStateRefused.

    `containers` asks the runtime for its containers, which only files of the first version need.
    """
    state = await _read(store, settings.policy, path, containers)
    if settings.static is not None:
        try:
            state = check_state(settings.static, state)
        except CpuStateMismatch as error:
            raise CpuStateRefused(
                f"start cpu manager error: {error}: drain this node and delete {path}, or take back what was changed "
                "in reservedSystemCPUs, kubeReserved, systemReserved, cpuManagerPolicyOptions or the machine's CPUs"
            ) from error
    await store.save(write_state(state, policy=settings.policy))
    return state


class ContainerLists(Protocol):
    """The part of the runtime that lists what it has."""

    async def list_pod_sandbox(self, request: cri.ListPodSandboxRequest) -> cri.ListPodSandboxResponse: ...

    async def list_containers(self, request: cri.ListContainersRequest) -> cri.ListContainersResponse: ...


async def list_containers(runtime: ContainerLists) -> dict[str, ContainerRef]:
    """Return the containers of the runtime by ID; none if it cannot be asked."""
    try:
        sandboxes = (await runtime.list_pod_sandbox(cri.ListPodSandboxRequest())).items
        containers = (await runtime.list_containers(cri.ListContainersRequest())).containers
    except CriError as error:
        logger.warning("Containers of the runtime are not known", extra={"error": error.message})
        return {}
    pods = {each.id: each.metadata.uid for each in sandboxes}
    return {
        each.id: ContainerRef(PodUID(pods[each.pod_sandbox_id]), each.metadata.name)
        for each in containers
        if each.pod_sandbox_id in pods
    }


async def _read(store: StateStore[CpuManagerState], policy: str, path: str, containers: ContainersById) -> CpuState:
    try:
        loaded = await store.read_or_refuse()
        if not isinstance(loaded, Found):
            return CpuState()
        known = await containers() if loaded.value.container_entries else {}
        return read_state(loaded.value, policy=policy, containers=known)
    except (CheckpointError, CpuStateMismatch) as error:
        raise CpuStateRefused(
            f"start cpu manager error: could not restore state from checkpoint: {error}, please drain this node and "
            f'delete the CPU manager checkpoint file "{path}" before restarting Kubelet'
        ) from error
