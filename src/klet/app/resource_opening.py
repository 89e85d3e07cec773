"""Opens what previous runs of the agent left of the resource managers."""

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.app.ports import MemoryManagerPorts
from klet.app.settings import AgentSettings
from klet.checkpoint.file import CheckpointFile, StateStore
from klet.checkpoint.upstream import MemoryManagerFormat, MemoryManagerState
from klet.resources.memory.state_file import FILE, restore_memory_state


async def open_memory_manager(settings: AgentSettings, *, threads: Threads, clock: Clock) -> MemoryManagerPorts:
    """Open the file of the memory manager; raises MemoryStateRefused if this configuration cannot go on from it."""
    path = settings.root / FILE
    store = CheckpointFile(path=path, form=MemoryManagerFormat(), threads=threads, clock=clock)
    return await restore_memory_manager(store, settings)


async def restore_memory_manager(store: StateStore[MemoryManagerState], settings: AgentSettings) -> MemoryManagerPorts:
    rules = settings.memory_manager
    path = str(settings.root / FILE)
    return MemoryManagerPorts(
        state=await restore_memory_state(store, rules.empty, policy=rules.policy, path=path), store=store
    )
