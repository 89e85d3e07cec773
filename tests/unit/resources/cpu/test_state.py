"""The state of the CPU manager: its file, what does not fit the machine, and who gets what back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.checkpoint.upstream import CpuManagerFormat, CpuManagerState
from klet.host.cpulist import parse_cpu_list
from klet.model.pods import PodUID
from klet.resources.cpu.policy import CpuPolicyOptions, build_static_policy
from klet.resources.cpu.state import (
    NONE,
    STATIC,
    ContainerRef,
    CpuState,
    CpuStateMismatch,
    check_state,
    read_state,
    write_state,
)
from klet.resources.cpu.topology import build_topology
from klet.testing.machines import SMALL, list_cpus

T1 = build_topology(list_cpus(SMALL))
UID, OTHER = PodUID("11111111-2222-3333-4444-555555555555"), PodUID("22222222-2222-3333-4444-555555555555")
POLICY = build_static_policy(T1, CpuPolicyOptions(), reserved=1, specific=frozenset())
STRICT = build_static_policy(T1, CpuPolicyOptions(strict_reservation=True), reserved=2, specific=frozenset({0, 4}))


def state(shared, **exclusive):
    return CpuState(
        shared=parse_cpu_list(shared),
        exclusive={UID: {name: parse_cpu_list(cpus) for name, cpus in exclusive.items()}} if exclusive else {},
    )


@pytest.mark.parametrize(
    ("given_state", "policy", "expected"),
    [
        pytest.param(
            CpuState(), NONE, b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}', id="policy none"
        ),
        pytest.param(
            state("0-7"), STATIC, b'{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152}', id="nobody"
        ),
        pytest.param(
            state("0-1,4-5", app="2,6", web="3,7"),
            STATIC,
            b'{"policyName":"static","defaultCpuSet":"0-1,4-5","entries":{"11111111-2222-3333-4444-555555555555":'
            b'{"app":"2,6","web":"3,7"}},"checksum":3798591913}',
            id="two containers",
        ),
    ],
)
def test_the_file_is_upstreams(given_state, policy, expected):
    data = CpuManagerFormat().encode(write_state(given_state, policy=policy))
    assert data == expected
    assert read_state(CpuManagerFormat().decode(data), policy=policy, containers={}) == given_state


sets = st.frozensets(st.integers(0, 300), max_size=20)


@given(
    shared=sets,
    exclusive=st.dictionaries(
        st.from_regex(r"[a-c0]([a-c0-]*[a-c0])?", fullmatch=True),
        st.dictionaries(st.text("xyz", min_size=1), sets, min_size=1),
    ),
)
def test_every_state_comes_back_from_its_file(shared, exclusive):
    before = CpuState(shared=shared, exclusive={PodUID(uid): each for uid, each in exclusive.items()})
    data = CpuManagerFormat().encode(write_state(before, policy=STATIC))
    assert read_state(CpuManagerFormat().decode(data), policy=STATIC, containers={}) == before


def test_a_file_of_the_first_version_is_migrated():
    file = CpuManagerState(
        policy_name=STATIC, default_cpu_set="0", container_entries={"id-1": "1-2", "id-2": "3", "id-3": "4"}
    )
    containers = {
        "id-1": ContainerRef(UID, "app"),
        "id-2": ContainerRef(UID, "web"),
        "id-3": ContainerRef(OTHER, "app"),
        "id-4": ContainerRef(OTHER, "more"),
    }
    assert read_state(file, policy=STATIC, containers=containers) == CpuState(
        shared=frozenset({0}),
        exclusive={UID: {"app": frozenset({1, 2}), "web": frozenset({3})}, OTHER: {"app": frozenset({4})}},
    )


@pytest.mark.parametrize(
    ("file", "message"),
    [
        pytest.param(
            CpuManagerState(policy_name="none", default_cpu_set=""),
            'configured policy "static" differs from state checkpoint policy "none"',
            id="another policy",
        ),
        pytest.param(
            CpuManagerState(policy_name=STATIC, default_cpu_set="0", container_entries={"id": "1"}),
            "error migrating v1 checkpoint state to v2 checkpoint state: "
            "containerID 'id' not found in initial containers list",
            id="a container that is gone",
        ),
        pytest.param(
            CpuManagerState(policy_name=STATIC, default_cpu_set="1-"),
            "could not parse default cpu set \"1-\": CPU list '1-': '1-' is neither a number nor a range",
            id="shared CPUs that are none",
        ),
        pytest.param(
            CpuManagerState(policy_name=STATIC, default_cpu_set="", entries={"../pod": {"c": "1"}}),
            "could not parse entries: invalid pod UID '../pod': must be at most 253 letters, digits, '-' and '.', "
            "and begin and end with a letter or digit",
            id="a UID that is none",
        ),
        pytest.param(
            CpuManagerState(policy_name=STATIC, default_cpu_set="", entries={"pod": {"c": "2-1"}}),
            'could not parse cpuset "2-1" for container "c" in pod "pod": invalid range "2-1" (2 > 1)',
            id="CPUs that are none",
        ),
    ],
)
def test_a_file_that_cannot_be_used(file, message):
    with pytest.raises(CpuStateMismatch) as caught:
        read_state(file, policy=STATIC, containers={})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("policy", "found", "expected"),
    [
        pytest.param(POLICY, CpuState(), state("0-7"), id="the first start"),
        pytest.param(STRICT, CpuState(), state("1-3,5-7"), id="the first start without reserved CPUs"),
        pytest.param(POLICY, state("0-1,4-7", a="2-3"), state("0-1,4-7", a="2-3"), id="what was given stays"),
        pytest.param(STRICT, state("", a="1-3,5-7"), state("", a="1-3,5-7"), id="all of them were given, strictly"),
        pytest.param(STRICT, state("1,5", a="2-3,6-7"), state("1,5", a="2-3,6-7"), id="what was given stays, strictly"),
    ],
)
def test_a_state_that_fits(policy, found, expected):
    assert check_state(policy, found) == expected


@pytest.mark.parametrize(
    ("policy", "found", "message"),
    [
        pytest.param(POLICY, state("", a="0-7"), "default cpuset cannot be empty", id="nothing is shared"),
        pytest.param(STRICT, state("", a="1-3,5"), "default cpuset cannot be empty", id="nothing is shared, strictly"),
        pytest.param(
            POLICY, state("1-7"), 'not all reserved cpus: "0" are present in defaultCpuSet: "1-7"', id="more reserved"
        ),
        pytest.param(
            STRICT,
            state("1-7"),
            'some of strictly reserved cpus: "4" are present in defaultCpuSet: "1-7"',
            id="reserved CPUs are shared",
        ),
        pytest.param(
            POLICY,
            state("0-5", a="5-7"),
            f'pod: {UID}, container: a cpuset: "5-7" overlaps with default cpuset "0-5"',
            id="given and shared",
        ),
        pytest.param(
            POLICY,
            state("0-5", a="6-8"),
            'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-8"',
            id="a CPU that is gone",
        ),
        pytest.param(
            POLICY,
            state("0-5", a="6"),
            'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-6"',
            id="a CPU that is new",
        ),
    ],
)
def test_a_state_that_does_not_fit(policy, found, message):
    with pytest.raises(CpuStateMismatch) as caught:
        check_state(policy, found)
    assert str(caught.value) == message


def test_cpus_that_a_container_of_the_same_pod_has_as_well_stay_with_it():
    both = state("2-3,6-7", init="0,1,4,5", app="0,4")
    assert both.without_container(UID, "init") == state("1-3,5-7", app="0,4")
    assert both.without_container(UID, "app") == state("2-3,6-7", init="0,1,4,5")
    assert both.without_container(UID, "init").without_container(UID, "app") == state("0-7")
    assert both.without_container(OTHER, "app") == both
