"""Memory of NUMA nodes by the rules of the static policy: hints, groups, reuse, release."""

import pytest
from msgspec.structs import replace

from klet.api.quantity import Quantity
from klet.checkpoint.upstream import MemoryBlock
from klet.host.machine.info import NumaNode
from klet.model.allocation import desired_allocation
from klet.model.qos import QosClass
from klet.resources.memory.allocation import allocate_memory, earlier_init_containers, find_left_memory
from klet.resources.memory.hints import compute_hints, regenerate_hints
from klet.resources.memory.requests import OddRequest, container_requests, has_own_memory, pod_requests
from klet.resources.memory.tables import MemoryState, build_tables, remove_container
from klet.resources.topology.hints import AllocationFailure, Hint, mask_of
from klet.testing.builders import make_container, make_pod, with_resources

MIB, GIB = 1 << 20, 1 << 30
NOWHERE = Hint(None, preferred=False)


def p(*nodes):
    return Hint(mask_of(nodes), preferred=True)


def n(*nodes):
    return Hint(mask_of(nodes), preferred=False)


def machine(count=2, *, memory=512 * MIB, pages=0, size=GIB):
    """Nodes with as much allocatable memory, and huge pages."""
    hugepages = {size: pages} if pages else {}
    return build_tables(
        [NumaNode(number=i, memory=memory + size * pages, hugepages=hugepages) for i in range(count)], {}
    )


def container(name, memory, *, sidecar=False, **pages):
    amounts = {"cpu": "1", "memory": memory, **{f"hugepages-{size}": amount for size, amount in pages.items()}}
    made = make_container(name, restart_policy="Always" if sidecar else None)
    return with_resources(made, requests=amounts, limits=amounts)


def give(state, pod, name, affinity=NOWHERE):
    every = (*pod.spec.init_containers, *pod.spec.containers)
    own = next(each for each in every if each.name == name)
    return allocate_memory(state, pod, own, wanted=container_requests(own.resources), affinity=affinity)


def given(state, pod, *names):
    for name in names:
        answer = give(state, pod, name)
        assert not isinstance(answer, AllocationFailure), answer
        state = answer.state
    return state


def blocks(state, uid="uid-1"):
    return {
        name: {block.type: (block.numa_affinity, block.size // MIB) for block in own}
        for name, own in state.entries[uid].items()
    }


def memory(state):
    return {number: node.memory_map["memory"].free // MIB for number, node in state.nodes.items()}


def test_the_tables_of_an_unused_machine():
    nodes = [NumaNode(number=0, memory=8 * GIB, hugepages={2 * MIB: 512, GIB: 0}), NumaNode(number=3, memory=GIB)]
    tables = build_tables(nodes, {0: {"memory": GIB, "hugepages-2Mi": 2 * MIB}})
    assert tables[0].cells == (0,)
    assert {
        name: (t.total, t.system_reserved, t.allocatable, t.free, t.reserved)
        for name, t in tables[0].memory_map.items()
    } == {
        "hugepages-1Gi": (0, 0, 0, 0, 0),
        "hugepages-2Mi": (GIB, 2 * MIB, GIB - 2 * MIB, GIB - 2 * MIB, 0),
        "memory": (8 * GIB, GIB, 6 * GIB, 6 * GIB, 0),
    }
    assert tables[3].memory_map["memory"].free == GIB


def test_the_example_of_a_group():
    """Memory is taken of both nodes, the huge page of the first alone; each resource is one assignment of each node."""
    state = MemoryState(nodes=machine(4, pages=1))
    pod = make_pod(container("app", "1Gi", **{"1Gi": "1Gi"}))
    state = given(state, pod, "app")
    assert blocks(state) == {"app": {"hugepages-1Gi": ((0, 1), 1024), "memory": ((0, 1), 1024)}}
    assert [node.number_of_assignments for node in state.nodes.values()] == [2, 2, 0, 0]
    assert [node.cells for node in state.nodes.values()] == [(0, 1), (0, 1), (2,), (3,)]
    assert memory(state) == {0: 0, 1: 0, 2: 512, 3: 512}
    assert [node.memory_map["hugepages-1Gi"].free for node in state.nodes.values()] == [0, GIB, GIB, GIB]
    assert compute_hints(state.nodes, {"memory": MIB}, {}) == {"memory": (p(2), p(3), n(2, 3))}


def test_a_group_that_is_the_whole_machine_is_not_preferred_by_a_small_container():
    state = given(MemoryState(nodes=machine(2, pages=1)), make_pod(container("app", "768Mi")), "app")
    assert compute_hints(state.nodes, {"memory": MIB}, {}) == {"memory": (n(0, 1),)}


def test_each_resource_has_the_same_hints():
    hints = compute_hints(machine(2, pages=1), {"hugepages-1Gi": 2 * GIB, "memory": MIB}, {})
    assert hints == {"hugepages-1Gi": (p(0, 1),), "memory": (p(0, 1),)}


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({"memory": 512 * MIB}, (p(0), p(1), n(0, 1)), id="as much as one node has"),
        pytest.param({"memory": 513 * MIB}, (p(0, 1),), id="more than one node has"),
        pytest.param({"memory": 2 * GIB}, None, id="more than there is"),
        pytest.param({"memory": MIB, "hugepages-2Mi": 2 * MIB}, None, id="pages that no node has"),
        pytest.param({"memory": 0}, (p(0), p(1), n(0, 1)), id="nothing"),
    ],
)
def test_hints(wanted, expected):
    assert compute_hints(machine(), wanted, {}).get("memory") == expected


def test_a_node_that_is_used_alone_is_in_no_group():
    state = given(MemoryState(nodes=machine()), make_pod(container("app", "1Mi")), "app")
    assert compute_hints(state.nodes, {"memory": 600 * MIB}, {}) == {}
    assert compute_hints(state.nodes, {"memory": 512 * MIB}, {}) == {"memory": (p(1),)}


@pytest.mark.parametrize(
    ("affinity", "taken", "expected"),
    [
        pytest.param(NOWHERE, "1Mi", (0,), id="without affinity: the narrowest"),
        pytest.param(p(1), "1Mi", (1,), id="what the topology manager says"),
        pytest.param(n(1), "600Mi", (0, 1), id="wider if that is too little"),
        pytest.param(
            n(0), "2Gi", "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
            id="nothing wider has enough",
        ),
        pytest.param(
            NOWHERE, "2Gi",
            "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
            id="nothing has enough",
        ),
    ],
)  # fmt: skip
def test_where_memory_is_taken(affinity, taken, expected):
    answer = give(MemoryState(nodes=machine()), make_pod(container("app", taken)), "app", affinity)
    if isinstance(answer, AllocationFailure):
        assert answer.message == expected
    else:
        assert answer.blocks[0].numa_affinity == expected


@pytest.mark.parametrize(
    ("first", "second", "affinity", "message"),
    [
        pytest.param("1Mi", "1Mi", n(0, 1), "preferred hint violates NUMA node allocation", id="the rule of groups"),
        pytest.param(
            "768Mi", "128Mi", Hint(None, preferred=True), "failed to find the default preferred hint",
            id="only a wide one is left",
        ),
        pytest.param(
            "768Mi", "128Mi", p(0), "failed to find the extended preferred hint", id="only a wider one is left"
        ),
    ],
)  # fmt: skip
def test_what_is_refused(first, second, affinity, message):
    state = given(MemoryState(nodes=machine()), make_pod(container("a", first)), "a")
    other = make_pod(container("b", second), uid="uid-2")
    assert give(state, other, "b", affinity) == AllocationFailure(f"[memorymanager] {message}")


def test_what_a_container_has_it_keeps():
    pod = make_pod(container("app", "64Mi"))
    state = given(MemoryState(nodes=machine()), pod, "app")
    again = give(state, pod, "app", p(1))
    assert (again.state, again.is_new) == (state, False)


def test_plain_init_containers_leave_their_memory():
    pod = make_pod(
        container("app", "300Mi"), container("web", "100Mi"),
        init=(container("one", "200Mi"), container("beside", "50Mi", sidecar=True), container("two", "350Mi")),
    )  # fmt: skip
    state = given(MemoryState(nodes=machine()), pod, "one", "beside", "two")
    assert blocks(state) == {
        "one": {"memory": ((0,), 0)},  # the sidecar and the second one use it again
        "beside": {"memory": ((0,), 50)},
        "two": {"memory": ((0,), 350)},
    }
    assert memory(state) == {0: 112, 1: 512}
    state = given(state, pod, "app", "web")
    assert blocks(state)["two"] == {"memory": ((0,), 0)}
    assert memory(state) == {0: 62, 1: 512}
    for name in ("one", "two"):
        state = remove_container(state, "uid-1", name)
    assert memory(state) == {0: 62, 1: 512}
    for name in ("beside", "app", "web"):
        state = remove_container(state, "uid-1", name)
    assert state == MemoryState(nodes=machine())


def test_memory_is_left_on_just_the_nodes_where_it_was():
    pod = make_pod(container("app", "100Mi"), init=(container("init", "200Mi"),))
    state = give(MemoryState(nodes=machine()), pod, "init", p(1)).state
    assert find_left_memory(state, pod, "app") == {mask_of([1]): {"memory": 200 * MIB}}
    assert memory(give(state, pod, "app", p(0)).state) == {0: 412, 1: 312}
    assert memory(give(state, pod, "app", p(1)).state) == {0: 512, 1: 312}


def test_nothing_is_left_to_a_container_before():
    pod = make_pod(container("app", "1Mi"), init=(container("one", "1Mi"), container("two", "1Mi")))
    assert earlier_init_containers(pod, "one") == ()
    assert earlier_init_containers(pod, "two") == ("one",)
    assert earlier_init_containers(pod, "app") == ("one", "two")


def test_a_release_of_what_nobody_has_changes_nothing():
    state = MemoryState(nodes=machine())
    assert remove_container(state, "uid-1", "app") is state


def test_hints_of_what_is_there_already():
    own = (
        MemoryBlock(numa_affinity=(0, 1), type="memory", size=GIB),
        MemoryBlock(numa_affinity=(0,), type="hugepages-2Mi", size=MIB),
    )
    assert regenerate_hints(own, {"memory": GIB, "hugepages-2Mi": MIB}) == {
        "memory": (p(0, 1),),
        "hugepages-2Mi": (p(0),),
    }
    for wanted in ({"memory": GIB}, {"memory": GIB, "hugepages-1Gi": MIB}, {"memory": 2 * GIB, "hugepages-2Mi": MIB}):
        assert regenerate_hints(own, wanted) == {}


def test_what_a_pod_requests_as_a_whole():
    pod = make_pod(
        container("app", "100Mi"), container("web", "50Mi", **{"2Mi": "4Mi"}),
        init=(
            container("one", "400Mi", **{"1Gi": "1Gi"}),
            container("beside", "300Mi", sidecar=True),
            container("two", "200Mi"),
        ),
    )  # fmt: skip
    # Beside the sidecar the second init container needs most; pages of init containers alone do not count.
    assert pod_requests(desired_allocation(pod)) == {"hugepages-2Mi": 4 * MIB, "memory": 500 * MIB}


@pytest.mark.parametrize("amount", ["1500m", "9223372036854775808"])
def test_requests_that_are_no_number_of_bytes(amount):
    own = replace(
        make_container("app"), resources=with_resources(make_container("a"), requests={"memory": amount}).resources
    )
    with pytest.raises(OddRequest, match="failed to represent quantity as int64"):
        container_requests(own.resources)


def test_only_guaranteed_pods_without_resources_of_their_own_have_memory():
    pod = make_pod(container("app", "1Mi"))
    assert has_own_memory(pod, pod_level=True)
    burstable = make_pod(with_resources(make_container("app"), requests={"memory": "1Mi"}))
    assert not has_own_memory(burstable, pod_level=True)
    # The class that a pod was given first never changes.
    status = replace(pod.status, qos_class=str(QosClass.BURSTABLE))
    assert not has_own_memory(replace(pod, status=status), pod_level=True)
    amounts = {"cpu": Quantity.parse("1"), "memory": Quantity.parse("1Gi")}
    whole = replace(pod.spec.containers[0].resources, requests=amounts, limits=amounts)
    with_level = replace(pod, spec=replace(pod.spec, resources=whole))
    assert not has_own_memory(with_level, pod_level=True)
    assert has_own_memory(with_level, pod_level=False)
