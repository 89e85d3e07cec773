"""Opens what previous runs of the agent left of the resource managers."""

from functools import partial

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.ports import CpuManagerPorts, MemoryManagerPorts
from klet.app.settings import AgentSettings
from klet.checkpoint.file import CheckpointFile, StateStore
from klet.checkpoint.upstream import CpuManagerFormat, CpuManagerState, MemoryManagerFormat, MemoryManagerState
from klet.cri.port import RuntimeService
from klet.resources.cpu.restore import FILE as CPU_FILE
from klet.resources.cpu.restore import list_containers, restore_cpu_state
from klet.resources.memory.state_file import FILE as MEMORY_FILE
from klet.resources.memory.state_file import restore_memory_state


async def open_cpu_manager(
    settings: AgentSettings, runtime: RuntimeService, *, threads: Threads, clock: Clock
) -> CpuManagerPorts:
    """Open the file of the CPU manager; raises CpuStateRefused if this configuration cannot go on from it."""
    store = CheckpointFile(path=settings.root / CPU_FILE, form=CpuManagerFormat(), threads=threads, clock=clock)
    return await restore_cpu_manager(store, settings, runtime)


async def restore_cpu_manager(
    store: StateStore[CpuManagerState], settings: AgentSettings, runtime: RuntimeService
) -> CpuManagerPorts:
    state = await restore_cpu_state(
        store,
        settings.cpu_manager,
        path=str(settings.root / CPU_FILE),
        containers=partial(list_containers, runtime),
    )
    return CpuManagerPorts(state=state, store=store)


async def open_memory_manager(settings: AgentSettings, *, threads: Threads, clock: Clock) -> MemoryManagerPorts:
    """Open the file of the memory manager; raises MemoryStateRefused if this configuration cannot go on from it."""
    store = CheckpointFile(path=settings.root / MEMORY_FILE, form=MemoryManagerFormat(), threads=threads, clock=clock)
    return await restore_memory_manager(store, settings)


async def restore_memory_manager(store: StateStore[MemoryManagerState], settings: AgentSettings) -> MemoryManagerPorts:
    rules = settings.memory_manager
    path = str(settings.root / MEMORY_FILE)
    return MemoryManagerPorts(
        state=await restore_memory_state(store, rules.empty, policy=rules.policy, path=path), store=store
    )
