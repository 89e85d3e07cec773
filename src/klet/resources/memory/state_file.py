"""What a previous run of the agent, klet's or upstream's, left of the memory manager (`memory_manager_state`)."""

from typing import Final

from klet.checkpoint.errors import CheckpointError
from klet.checkpoint.file import Found, StateStore
from klet.checkpoint.upstream import MemoryManagerState
from klet.errors import KletError
from klet.resources.memory.tables import MemoryState, NodeTables
from klet.resources.memory.validation import find_state_problem

FILE: Final = "memory_manager_state"
NO_POLICY: Final = "None"
STATIC: Final = "Static"


class MemoryStateRefused(KletError):
    """State that only an administrator may give up: pods may still use what it says."""


async def restore_memory_state(
    store: StateStore[MemoryManagerState], empty: NodeTables, *, policy: str, path: str
) -> MemoryState:
    """Return what is given to containers, and write what the next run has to know; raises MemoryStateRefused.

    `empty` are the tables of this machine while nobody has anything; none with the policy None.
    """
    try:
        loaded = await store.read_or_refuse()
        if isinstance(loaded, Found) and loaded.value.policy_name != policy:
            raise MemoryStateRefused(
                f'[memorymanager] configured policy "{policy}" differs from state checkpoint policy '
                f'"{loaded.value.policy_name}"'
            )
    except (CheckpointError, MemoryStateRefused) as error:
        raise MemoryStateRefused(
            f"start memory manager error: could not restore state from checkpoint: {error}, please drain this node and "
            f'delete the memory manager checkpoint file "{path}" before restarting Kubelet'
        ) from error
    found = loaded.value if isinstance(loaded, Found) else MemoryManagerState(policy_name=policy, machine_state={})
    state = MemoryState(nodes=found.machine_state, entries=found.entries)
    if policy == STATIC:
        problem = find_state_problem(state, empty)
        if problem is not None:
            raise MemoryStateRefused(
                f"start memory manager error: {problem}: drain this node and delete {path}, or take back what was "
                "changed in reservedMemory, kubeReserved, systemReserved or the machine's memory"
            )
        state = MemoryState(nodes=state.nodes or empty, entries=state.entries)
    await store.save(encode_state(state, policy=policy))
    return state


def encode_state(state: MemoryState, *, policy: str = STATIC) -> MemoryManagerState:
    return MemoryManagerState(
        policy_name=policy,
        machine_state=dict(state.nodes),
        entries={uid: dict(containers) for uid, containers in state.entries.items()},
    )
