"""Which containers get CPUs of their own, and which ones: upstream's examples, and what holds for all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.host.cpulist import format_cpu_list, parse_cpu_list
from klet.model.allocation import desired_allocation
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.resources.cpu.policy import CpuPolicyOptions, build_static_policy
from klet.resources.cpu.state import CpuState, check_state
from klet.resources.cpu.static import (
    IMPOSSIBLE,
    CpuDemand,
    GivenCpus,
    Released,
    WhyShared,
    allocate,
    container_hints,
    count_pod_cpus,
    find_demand,
    pod_hints,
    release,
)
from klet.resources.cpu.topology import build_topology
from klet.resources.topology.hints import AllocationFailure, Hint, mask_of, nodes_of
from klet.testing.machines import SMALL, TWO_SOCKETS, XEON_2S_CLUSTERED, list_cpus

T1, T2, T3 = (build_topology(list_cpus(shape)) for shape in (SMALL, TWO_SOCKETS, XEON_2S_CLUSTERED))
UID, OTHER = PodUID("pod"), PodUID("other")
ANYWHERE = Hint(None, preferred=False)
FULL = CpuPolicyOptions(full_cores=True)


def policy(topology=T1, options=CpuPolicyOptions(), *, reserved="0"):  # noqa: B008 - immutable
    cpus = parse_cpu_list(reserved)
    return build_static_policy(topology, options, reserved=len(cpus), specific=cpus)


def start(rules, **taken):
    """Return the state in which another pod has CPUs."""
    state = check_state(rules, CpuState())
    for name, cpus in taken.items():
        state = state.with_container(OTHER, name, parse_cpu_list(cpus))
    return state


def demand(count, container="app"):
    return CpuDemand(uid=UID, container=container, count=count, donors=frozenset({"init"}))


def on_nodes(*nodes):
    return Hint(mask_of(nodes), preferred=True)


def make_pod(*containers, init=(), qos="Guaranteed", **spec):
    def build(name, cpu, policy=None):
        resources = {"requests": {"cpu": cpu}} if cpu else {}
        return {"name": name, "resources": resources, **({"restartPolicy": policy} if policy else {})}

    return convert(
        Pod,
        {
            "metadata": {"name": "pod", "namespace": "default", "uid": UID},
            "spec": {
                "containers": [build(*each) for each in containers],
                "initContainers": [build(*each) for each in init],
                **spec,
            },
            "status": {"qosClass": qos},
        },
    )


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(make_pod(("app", "2")), 2, id="whole CPUs"),
        pytest.param(make_pod(("app", "2000m")), 2, id="whole CPUs in thousandths"),
        pytest.param(make_pod(("app", "1.0")), 1, id="a whole CPU with a fraction of zero"),
        pytest.param(make_pod(("app", "1500m")), WhyShared.NOT_WHOLE, id="a CPU and a half"),
        pytest.param(make_pod(("app", "500m")), WhyShared.NOT_WHOLE, id="half a CPU"),
        pytest.param(make_pod(("app", "")), WhyShared.NOTHING, id="no CPU"),
        pytest.param(make_pod(("app", "0")), WhyShared.NOTHING, id="a request of zero"),
        pytest.param(make_pod(("app", "2"), qos="Burstable"), WhyShared.QOS, id="Burstable"),
        pytest.param(make_pod(("app", "2"), qos="BestEffort"), WhyShared.QOS, id="BestEffort"),
        pytest.param(
            make_pod(("app", "2"), resources={"requests": {"cpu": "2"}}), WhyShared.POD_LEVEL, id="pod-level resources"
        ),
        pytest.param(make_pod(("app", "2"), resources={}), 2, id="empty pod-level resources"),
        pytest.param(make_pod(("x", "1"), init=[("app", "2")]), 2, id="an init container"),
        pytest.param(make_pod(("x", "1"), init=[("app", "2", "Always")]), 2, id="a sidecar"),
    ],
)
def test_who_gets_cpus(pod, expected):
    found = find_demand(pod, desired_allocation(pod), "app")
    assert (found if isinstance(found, WhyShared) else found.count) == expected


def test_whose_cpus_the_next_container_gets():
    pod = make_pod(("app", "1"), init=[("first", "1"), ("beside", "1", "Always"), ("second", "1")])
    found = find_demand(pod, desired_allocation(pod), "app")
    assert isinstance(found, CpuDemand)
    assert found.donors == {"first", "second"}


@pytest.mark.parametrize(
    ("pod", "count"),
    [
        pytest.param(make_pod(("a", "2"), ("b", "1")), 3, id="regular containers together"),
        pytest.param(make_pod(("a", "2"), init=[("i", "5")]), 5, id="the largest init container"),
        pytest.param(
            make_pod(("a", "2"), init=[("s", "2", "Always"), ("i", "3")]), 5, id="beside the sidecars before it"
        ),
        pytest.param(
            make_pod(("a", "4"), init=[("i", "3"), ("s", "2", "Always")]), 6, id="sidecars beside the regular"
        ),
        pytest.param(make_pod(("a", "2"), ("b", "500m"), ("c", "")), 2, id="whole CPUs only"),
        pytest.param(make_pod(("a", "2"), qos="Burstable"), 0, id="Burstable"),
    ],
)
def test_how_many_a_pod_needs(pod, count):
    assert count_pod_cpus(pod, desired_allocation(pod)) == count


@pytest.mark.parametrize(
    ("rules", "taken", "count", "affinity", "expected"),
    [
        pytest.param(policy(T1), {"a": "2-3,6-7"}, 2, ANYWHERE, "1,5", id="a core that is free"),
        pytest.param(policy(T2), {"a": "2"}, 6, ANYWHERE, "1,3,5,7,9,11", id="a NUMA node that is free"),
        pytest.param(policy(T2), {"a": "1,5"}, 6, ANYWHERE, "2-4,8-10", id="three cores of two nodes"),
        pytest.param(policy(T1), {}, 1, ANYWHERE, "4", id="the sibling of the reserved CPU"),
        pytest.param(policy(T2, reserved="5"), {}, 2, on_nodes(1), "1,7", id="near the affinity"),
        pytest.param(policy(T2, reserved="11"), {}, 7, on_nodes(1), "0-1,3,5-7,9", id="and then elsewhere"),
        pytest.param(policy(T1, FULL), {}, 6, ANYWHERE, "1-3,5-7", id="whole cores, not that of the reserved CPU"),
        pytest.param(
            policy(T3, CpuPolicyOptions(by_socket=True), reserved="79"),
            {},
            30,
            on_nodes(0),
            "0-14,40-54",
            id="on the socket of the affinity",
        ),
    ],
)
def test_which_cpus(rules, taken, count, affinity, expected):
    before = start(rules, **taken)
    found = allocate(rules, before, demand(count), affinity)
    assert isinstance(found, GivenCpus)
    assert (format_cpu_list(found.cpus), found.is_new) == (expected, True)
    assert found.state.of(UID, "app") == found.cpus
    assert found.state.shared == before.shared - found.cpus


def test_reserved_cpus_are_shared_unless_the_reservation_is_strict():
    strict = policy(T1, CpuPolicyOptions(strict_reservation=True), reserved="0,4")
    assert format_cpu_list(start(strict).shared) == "1-3,5-7"
    assert format_cpu_list(start(policy(T1, reserved="0,4")).shared) == "0-7"


@pytest.mark.parametrize(
    ("rules", "taken", "count", "failure"),
    [
        pytest.param(
            policy(T1),
            {"a": "1-6"},
            2,
            AllocationFailure("not enough cpus available to satisfy request: requested=2, available=1"),
            id="too few",
        ),
        pytest.param(
            policy(T1, FULL),
            {},
            3,
            AllocationFailure(
                "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2", Reason.SMT_ALIGNMENT_ERROR
            ),
            id="half a core",
        ),
        pytest.param(
            policy(T1, FULL),
            {},
            8,
            AllocationFailure(
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, "
                "requested CPUs = 8, CPUs per core = 2",
                Reason.SMT_ALIGNMENT_ERROR,
            ),
            id="too few whole cores",
        ),
    ],
)
def test_who_gets_none(rules, taken, count, failure):
    assert allocate(rules, start(rules, **taken), demand(count), ANYWHERE) == failure


@pytest.mark.parametrize(
    "options", [pytest.param(CpuPolicyOptions(), id="plain"), pytest.param(FULL, id="whole cores")]
)
def test_what_a_container_has_it_keeps(options):
    rules = policy(T1, options)
    before = start(rules).with_container(UID, "app", parse_cpu_list("1-3,5-7"))
    # With whole cores upstream would reject the pod: nothing is free any more.
    found = allocate(rules, before, demand(6), ANYWHERE)
    assert isinstance(found, GivenCpus)
    assert (format_cpu_list(found.cpus), found.is_new) == ("1-3,5-7", False)
    assert found.state.exclusive == before.exclusive


def test_the_cpus_of_an_init_container_go_to_the_next_container():
    rules = policy(T1, reserved="7")
    first = allocate(rules, start(rules), demand(4, "init"), ANYWHERE)
    assert isinstance(first, GivenCpus)
    assert format_cpu_list(first.cpus) == "0-1,4-5"
    second = allocate(rules, first.state, demand(2), ANYWHERE)
    assert isinstance(second, GivenCpus)
    assert (format_cpu_list(second.cpus), format_cpu_list(second.reused)) == ("0,4", "0,4")
    assert format_cpu_list(second.state.shared) == "2-3,6-7"
    assert format_cpu_list(second.state.reusable_for(UID)) == "1,5"
    assert second.state.reusable_for(OTHER) == frozenset()
    left, released = release(second.state, lambda _, container: container != "init")
    assert released == (Released(UID, "init", parse_cpu_list("0-1,4-5")),)
    assert format_cpu_list(left.shared) == "1-3,5-7"
    assert left.reusable == frozenset()


def test_the_cpus_of_a_sidecar_stay_with_it():
    rules = policy(T1, reserved="7")
    first = allocate(rules, start(rules), demand(2, "beside"), ANYWHERE)
    assert isinstance(first, GivenCpus)
    second = allocate(rules, first.state, demand(2), ANYWHERE)
    assert isinstance(second, GivenCpus)
    assert not first.cpus & second.cpus


def test_another_pod_ends_the_reuse():
    rules = policy(T1, reserved="7")
    first = allocate(rules, start(rules), demand(2, "init"), ANYWHERE)
    assert isinstance(first, GivenCpus)
    other = CpuDemand(uid=OTHER, container="app", count=2)
    found = allocate(rules, first.state, other, ANYWHERE)
    assert isinstance(found, GivenCpus)
    assert found.state.reusable_for(UID) == frozenset()


def shown(hints):
    found = hints.get("cpu")
    return None if found is None else [(*nodes_of(each.mask), each.preferred) for each in found]


def test_hints_of_containers():
    rules = policy(T2)
    state = start(rules, a="2,8").with_container(UID, "has", parse_cpu_list("1,7"))
    assert shown(container_hints(rules, state, WhyShared.QOS)) is None
    assert shown(container_hints(rules, state, demand(4))) == [(1, True), (0, 1, False)]
    assert shown(container_hints(rules, state, demand(5))) == [(0, 1, False)]
    assert shown(container_hints(rules, state, demand(2, "has"))) == [(1, True), (0, 1, False)]
    assert container_hints(rules, state, demand(3, "has")) == IMPOSSIBLE


@pytest.mark.parametrize(
    ("pod", "has", "expected"),
    [
        pytest.param(make_pod(("a", "2"), ("b", "2")), {}, [(0, True), (1, True), (0, 1, False)], id="together"),
        pytest.param(make_pod(("a", "2"), ("b", "2")), {"a": "1,7"}, [(1, True), (0, 1, False)], id="one has its part"),
        pytest.param(
            make_pod(("a", "2"), ("b", "2")), {"a": "1,7", "b": "2,8"}, [(0, 1, False)], id="both have their part"
        ),
        pytest.param(make_pod(("a", "2"), ("b", "2")), {"a": "1"}, [], id="one has another number"),
        pytest.param(make_pod(("a", "500m")), {}, None, id="nothing to align"),
        pytest.param(make_pod(("a", "2"), resources={"limits": {"cpu": "2"}}), {}, None, id="pod-level resources"),
    ],
)
def test_hints_of_pods(pod, has, expected):
    rules = policy(T2)
    state = start(rules)
    for name, cpus in has.items():
        state = state.with_container(UID, name, parse_cpu_list(cpus))
    assert shown(pod_hints(rules, state, pod, desired_allocation(pod))) == expected


OPTIONS = st.builds(
    CpuPolicyOptions,
    full_cores=st.booleans(),
    strict_reservation=st.booleans(),
    across_numa=st.booleans(),
    by_socket=st.booleans(),
)


class CpusOfPods(RuleBasedStateMachine):
    """Pods come and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = policy(T2)
        self.state = start(self.rules)
        self.gone: set[str] = set()

    @rule(options=OPTIONS, reserved=st.frozensets(st.integers(0, 11), min_size=1, max_size=4))
    def begin_again(self, options, reserved):
        self.rules = build_static_policy(T2, options, reserved=len(reserved), specific=reserved)
        self.state = check_state(self.rules, CpuState())

    @rule(
        uid=st.sampled_from(["p", "q", "r", "s"]),
        counts=st.fixed_dictionaries({}, optional={name: st.integers(1, 6) for name in "ijab"}),
        nodes=st.sampled_from([None, (0,), (1,), (0, 1)]),
    )
    def admit(self, uid, counts, nodes):
        """Ask for all containers of a pod in order; it may be asked about again, also with other containers."""
        for container, count in sorted(counts.items(), key=lambda each: "ijab".index(each[0])):
            before = self.state
            wanted = CpuDemand(uid=PodUID(uid), container=container, count=count, donors=frozenset("ij"))
            found = allocate(self.rules, before, wanted, ANYWHERE if nodes is None else on_nodes(*nodes))
            if not isinstance(found, GivenCpus):
                return
            self.state = found.state
            held = before.of(wanted.uid, container)
            assert found.cpus == held if held is not None else len(found.cpus) == count
            if held is None:
                assert found.cpus <= (before.shared - self.rules.reserved) | before.reusable_for(wanted.uid)

    @rule(uid=st.sampled_from(["p", "q", "r", "s"]))
    def end(self, uid):
        self.state, _ = release(self.state, lambda other, _: other != uid)
        assert uid not in self.state.exclusive

    @rule()
    def end_all(self):
        self.state, _ = release(self.state, lambda *_: False)
        assert self.state.shared == self.rules.managed

    @invariant()
    def no_cpu_is_given_twice(self):
        by_pod = [frozenset().union(*each.values()) for each in self.state.exclusive.values()]
        together = sum(len(cpus) for cpus in by_pod)
        assert len(frozenset().union(*by_pod)) == together
        for each in self.state.exclusive.values():
            apps = [cpus for name, cpus in each.items() if name in "ab"]
            assert len(frozenset().union(*apps)) == sum(map(len, apps))

    @invariant()
    def every_cpu_is_somewhere(self):
        assert not self.state.shared & self.state.assigned
        assert self.state.shared | self.state.assigned == self.rules.managed
        assert not self.rules.reserved & self.state.assigned

    @invariant()
    def the_next_run_goes_on_from_it(self):
        assert check_state(self.rules, self.state) == self.state


TestCpusOfPods = CpusOfPods.TestCase
TestCpusOfPods.settings = settings(max_examples=60, stateful_step_count=30)


@given(gone=st.sets(st.sampled_from(["a", "b", "c"])))
def test_what_is_released_is_what_may_not_be_held(gone):
    rules = policy(T1, reserved="7")
    state = start(rules, a="0,4", b="1", c="2-3")
    left, released = release(state, lambda _, container: container not in gone)
    assert {each.container for each in released} == gone
    assert set(left.exclusive.get(OTHER, {})) == {"a", "b", "c"} - gone
