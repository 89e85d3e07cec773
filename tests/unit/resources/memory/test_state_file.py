"""What a previous run left: used, completed or refused, in upstream's words."""

import asyncio

import pytest

from klet.checkpoint.upstream import MemoryBlock, MemoryManagerFormat, MemoryManagerState
from klet.host.machine.info import NumaNode
from klet.resources.memory.state_file import MemoryStateRefused, encode_state, restore_memory_state
from klet.resources.memory.tables import MemoryState, build_tables, take
from klet.testing.state_bytes import StateBytes

GIB = 1 << 30
UPSTREAM = (
    b'{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"hugepages-2Mi":{"total":0,'
    b'"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"memory":{"total":8589934592,"systemReserved":1073741824'
    b',"allocatable":7516192768,"reserved":1073741824,"free":6442450944}},"cells":[0]},"1":{"numberOfAssignments":0,'
    b'"memoryMap":{"hugepages-2Mi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"memory":{'
    b'"total":8589934592,"systemReserved":0,"allocatable":8589934592,"reserved":0,"free":8589934592}},"cells":[1]}},'
    b'"entries":{"11111111-2222-3333-4444-555555555555":{"app":[{"numaAffinity":[0],"type":"memory","size":1073741824}]'
    b'}},"checksum":87500621}'
)
NODES = tuple(NumaNode(number=number, memory=8 * GIB, hugepages={2 << 20: 0}) for number in (0, 1))
EMPTY = build_tables(NODES, {0: {"memory": GIB}})
ADVICE = ', please drain this node and delete the memory manager checkpoint file "/f" before restarting Kubelet'


def store_with(data):
    store = StateBytes(form=MemoryManagerFormat())
    store.data = data
    return store


def restore(store, empty=EMPTY, *, policy="Static"):
    return asyncio.run(restore_memory_state(store, empty, policy=policy, path="/f"))


def test_the_file_of_upstream_is_taken_over_byte_for_byte():
    store = store_with(UPSTREAM)
    state = restore(store)
    assert state.blocks_of("11111111-2222-3333-4444-555555555555", "app") == (
        MemoryBlock(numa_affinity=(0,), type="memory", size=GIB),
    )
    assert store.data == UPSTREAM


def test_the_first_start_writes_what_the_machine_has():
    store = store_with(None)
    assert restore(store) == MemoryState(nodes=EMPTY)
    assert MemoryManagerFormat().decode(store.data).machine_state == EMPTY


def test_the_policy_none_writes_a_file_without_a_machine():
    store = store_with(None)
    restore(store, {}, policy="None")
    assert store.data == b'{"policyName":"None","machineState":{},"checksum":4236770233}'


def having(*blocks):
    return {"uid": {"app": blocks}}


def changed(**fields):
    block = MemoryBlock(numa_affinity=(0,), type="memory", size=GIB)
    state = MemoryState(nodes=take(EMPTY, block, size=GIB), entries={"uid": {"app": (block,)}})
    value = encode_state(state)
    names = ("policy_name", "machine_state", "entries")
    return MemoryManagerFormat().encode(
        MemoryManagerState(**{name: fields.get(name, getattr(value, name)) for name in names})
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(UPSTREAM.replace(b"87500621", b"1"), "could not restore state from checkpoint: checkpoint is "
                     f"corrupted{ADVICE}", id="a wrong checksum"),
        pytest.param(changed(policy_name="None"), "could not restore state from checkpoint: [memorymanager] configured "
                     f'policy "Static" differs from state checkpoint policy "None"{ADVICE}', id="another policy"),
        pytest.param(changed(machine_state={}), "[memorymanager] machine state can not be empty when it has memory "
                     "assignments", id="no machine"),
        pytest.param(changed(entries={}), "[memorymanager] the expected machine state is different from the real one",
                     id="no entries"),
        pytest.param(changed(machine_state=dict(EMPTY)), "[memorymanager] the expected machine state is different from "
                     "the real one", id="nothing taken"),
        pytest.param(changed(entries=having(MemoryBlock(numa_affinity=(7,), type="memory", size=1))),
                     "[memorymanager] (pod: uid, container: app) the memory assignment uses the NUMA that does not "
                     "exist", id="a node that is not there"),
        pytest.param(changed(entries=having(MemoryBlock(numa_affinity=(0,), type="hugepages-1Gi", size=1))),
                     "[memorymanager] (pod: uid, container: app) the memory assignment uses memory resource that does "
                     "not exist", id="pages that are not there"),
    ],
)  # fmt: skip
def test_refused_and_left_alone(data, message):
    store = store_with(data)
    with pytest.raises(MemoryStateRefused) as caught:
        restore(store)
    assert str(caught.value).startswith(f"start memory manager error: {message}")
    assert (store.data, store.saves) == (data, 0)


@pytest.mark.parametrize(
    ("nodes", "reserved"),
    [
        pytest.param((*NODES, NumaNode(number=2, memory=GIB, hugepages={2 << 20: 0})), GIB, id="another node"),
        pytest.param(NODES[:1], GIB, id="a node less"),
        pytest.param((NODES[0], NumaNode(number=1, memory=9 * GIB, hugepages={2 << 20: 0})), GIB, id="more memory"),
        pytest.param((NODES[0], NumaNode(number=1, memory=8 * GIB)), GIB, id="no pages of a size"),
        pytest.param(NODES, 2 * GIB, id="more reserved"),
    ],
)
def test_a_machine_that_has_changed(nodes, reserved):
    with pytest.raises(MemoryStateRefused, match="the expected machine state is different from the real one"):
        restore(store_with(UPSTREAM), build_tables(nodes, {0: {"memory": reserved}}))


def test_a_node_in_two_groups_is_no_reason_to_refuse():
    """Upstream lets the topology manager narrow an affinity down to one node of a group."""
    group = MemoryBlock(numa_affinity=(0, 1), type="memory", size=10 * GIB)
    alone = MemoryBlock(numa_affinity=(1,), type="memory", size=2 * GIB)
    nodes = take(take(EMPTY, group, size=group.size), alone, size=alone.size)
    value = encode_state(MemoryState(nodes=nodes, entries={"a": {"c": (alone,)}, "b": {"c": (group,)}}))
    assert restore(store_with(MemoryManagerFormat().encode(value))).nodes == nodes
