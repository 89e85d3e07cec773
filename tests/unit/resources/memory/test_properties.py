"""Whatever pods come and go: no memory is given twice, what is released is free, and a restart changes nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from klet.checkpoint.upstream import MemoryManagerFormat
from klet.host.machine.info import NumaNode
from klet.resources.memory.allocation import allocate_memory, find_left_memory
from klet.resources.memory.hints import compute_hints
from klet.resources.memory.requests import container_requests
from klet.resources.memory.state_file import encode_state
from klet.resources.memory.tables import MemoryState, build_tables, remove_container
from klet.resources.memory.validation import find_state_problem
from klet.resources.topology.hints import AllocationFailure, Hint, mask_of
from klet.testing.builders import make_container, make_pod, with_resources

MIB = 1 << 20
PAGE = "hugepages-2Mi"

amounts = st.tuples(st.integers(1, 12), st.integers(0, 2))
containers = st.lists(st.tuples(amounts, st.booleans()), min_size=1, max_size=3)
pods = st.lists(st.tuples(containers, st.lists(amounts, min_size=1, max_size=2)), min_size=1, max_size=4)
machines = st.lists(st.tuples(st.integers(6, 14), st.integers(0, 2)), min_size=1, max_size=4)


def container(name, amount, *, sidecar=False):
    memory, pages = amount
    own = {"cpu": "1", "memory": f"{memory}Mi"} | ({PAGE: f"{2 * pages}Mi"} if pages else {})
    return with_resources(make_container(name, restart_policy="Always" if sidecar else None), requests=own, limits=own)


def build_pod(number, description):
    init, regular = description
    return make_pod(
        *(container(f"c{i}", amount) for i, amount in enumerate(regular)),
        init=tuple(container(f"i{i}", amount, sidecar=sidecar) for i, (amount, sidecar) in enumerate(init)),
        uid=f"uid-{number}",
    )


def check(state, empty):
    """Each byte is free or in one block, on the nodes of that block."""
    for resource in ("memory", PAGE):
        tables = [
            (node.memory_map[resource], empty[number].memory_map[resource]) for number, node in state.nodes.items()
        ]
        for table, fresh in tables:
            assert table.free + table.reserved == fresh.allocatable
            assert min(table.free, table.reserved) >= 0
        blocks = [
            block for own in state.entries.values() for each in own.values() for block in each if block.type == resource
        ]
        assert sum(table.reserved for table, _ in tables) == sum(block.size for block in blocks)
        for number, node in state.nodes.items():
            if not any(number in block.numa_affinity for block in blocks):
                assert node.memory_map[resource].reserved == 0
    assert find_state_problem(state, empty) is None
    form = MemoryManagerFormat()
    data = form.encode(encode_state(state))
    read = form.decode(data)
    assert MemoryState(nodes=read.machine_state, entries=read.entries) == state
    assert form.encode(encode_state(state)) == data


@settings(max_examples=300, deadline=None)
@given(machines, pods, st.data())
def test_memory_is_given_once_and_comes_back(nodes, descriptions, data):
    empty = build_tables(
        [NumaNode(number=i, memory=(m + 2 * h) * MIB, hugepages={2 * MIB: h}) for i, (m, h) in enumerate(nodes)],
        {0: {"memory": MIB}},
    )
    state = MemoryState(nodes=empty)
    held = []
    for number, description in enumerate(descriptions):
        pod = build_pod(number, description)
        for own in (*pod.spec.init_containers, *pod.spec.containers):
            wanted = container_requests(own.resources)
            hints = compute_hints(state.nodes, wanted, find_left_memory(state, pod, own.name)).get("memory", ())
            # Often what the hints say, sometimes what other resources make of it.
            own_choice = st.sampled_from(hints) if hints else st.just(Hint(None, preferred=False))
            narrowed = st.sets(st.integers(0, len(nodes) - 1), min_size=1).map(
                lambda chosen: Hint(mask_of(chosen), preferred=False)
            )
            affinity = data.draw(st.one_of(own_choice, own_choice, narrowed))
            answer = allocate_memory(state, pod, own, wanted=wanted, affinity=affinity)
            if isinstance(answer, AllocationFailure):
                break
            state = answer.state
            held.append((pod.metadata.uid, own.name))
            check(state, empty)
            if data.draw(st.booleans()):
                # After a restart all that is known is the file, and what was given is asked for again.
                assert allocate_memory(state, pod, own, wanted=wanted, affinity=affinity).state == state
        while held and data.draw(st.integers(0, 3)) == 0:
            state = remove_container(state, *held.pop(data.draw(st.integers(0, len(held) - 1))))
            check(state, empty)
    for uid, name in held:
        state = remove_container(state, uid, name)
    assert state == MemoryState(nodes=empty)
