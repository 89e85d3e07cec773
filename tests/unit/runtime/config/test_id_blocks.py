"""Blocks of ids: the range, allocation, and the file in a pod's directory."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.model.pods import PodUID
from klet.runtime.config.id_blocks import (
    UNIT,
    IdBlock,
    IdBlocks,
    IdRange,
    UserNamespaceError,
    choose_range,
    decode_block,
    encode_block,
    parse_granted,
)

A, B, C = PodUID("a"), PodUID("b"), PodUID("c")
SMALL = IdRange(first=UNIT, length=2 * UNIT, per_pod=UNIT)


def mapping(first: int = UNIT, length: int = UNIT, container: int = 0) -> dict[str, int]:
    return {"hostId": first, "containerId": container, "length": length}


def test_the_whole_range_but_the_first_block():
    assert choose_range(per_pod=UNIT, max_pods=110) == IdRange(first=65536, length=4294901760, per_pod=65536)


def test_larger_blocks():
    assert choose_range(per_pod=2 * UNIT, max_pods=110).count == 32767


@pytest.mark.parametrize(
    ("per_pod", "granted", "rule"),
    [
        pytest.param(1000, None, "idsPerPod 1000 is not a multiple of 65536", id="odd blocks"),
        pytest.param(UNIT, IdBlock(UNIT + 1, UNIT * 200), "the first id 65537 is not a multiple", id="an odd start"),
        pytest.param(UNIT, IdBlock(0, UNIT * 200), "the first id 0 must be at least 65536", id="the host's own ids"),
        pytest.param(UNIT, IdBlock(UNIT, UNIT * 200 + 1), "is not a multiple of 65536", id="an odd length"),
        pytest.param(UNIT, IdBlock(UNIT, UNIT * 109), "too few for 110 pods", id="too few"),
    ],
)
def test_ranges_that_cannot_be_divided(per_pod, granted, rule):
    with pytest.raises(UserNamespaceError, match=rule):
        choose_range(per_pod=per_pod, max_pods=110, granted=granted)


def test_what_an_administrator_granted():
    text = "0: kubelet 65536 7208960\n"
    granted = parse_granted(text, text)
    assert choose_range(per_pod=UNIT, max_pods=110, granted=granted) == IdRange(
        first=65536, length=7208960, per_pod=65536
    )


@pytest.mark.parametrize(
    ("users", "groups", "rule"),
    [
        pytest.param("0: kubelet 1 2\n", "0: kubelet 1 3\n", "differ", id="users and groups differ"),
        pytest.param("", "", "expected one range", id="none"),
        pytest.param("0: k 1 2\n1: k 5 6\n", "0: k 1 2\n1: k 5 6\n", "found 2", id="two"),
        pytest.param("kubelet 1 2\n", "kubelet 1 2\n", "cannot read", id="three fields"),
        pytest.param("0: kubelet x 2\n", "0: kubelet x 2\n", "cannot read", id="no number"),
    ],
)
def test_grants_that_cannot_be_used(users, groups, rule):
    with pytest.raises(UserNamespaceError, match=rule):
        parse_granted(users, groups)


def test_each_pod_gets_a_block_of_its_own_until_there_are_none():
    blocks, randomness = IdBlocks(ids=SMALL), random.Random(1)
    first, second = blocks.allocate(A, randomness), blocks.allocate(B, randomness)
    assert {first, second} == {IdBlock(UNIT, UNIT), IdBlock(2 * UNIT, UNIT)}
    with pytest.raises(UserNamespaceError) as caught:
        blocks.allocate(C, randomness)
    assert str(caught.value) == "create user namespace: could not find an empty slot to allocate a user namespace"
    blocks.release(A)
    assert blocks.of(A) is None
    assert blocks.allocate(C, randomness) == first


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=40), st.integers())
def test_no_two_pods_ever_share_an_id(steps, seed):
    blocks, randomness = IdBlocks(ids=IdRange(first=UNIT, length=4 * UNIT, per_pod=UNIT)), random.Random(seed)
    held: dict[PodUID, IdBlock] = {}
    for name, takes in steps:
        uid = PodUID(name)
        if not takes:
            blocks.release(uid)
            held.pop(uid, None)
        elif uid not in held and len(held) < 4:
            held[uid] = blocks.allocate(uid, randomness)
    assert len(set(held.values())) == len(held)
    assert all(blocks.of(uid) == block and block.first >= UNIT for uid, block in held.items())


@pytest.mark.parametrize(
    ("block", "message"),
    [
        pytest.param(IdBlock(UNIT, 1000), "wrong user namespace length 1000", id="another length"),
        pytest.param(IdBlock(UNIT + 5, UNIT), "wrong user namespace offset specified 65541", id="an odd start"),
        pytest.param(IdBlock(0, UNIT), "id 0 is out of range", id="the host's own ids"),
        pytest.param(IdBlock(9 * UNIT, UNIT), f"id {9 * UNIT} is out of range", id="beyond the range"),
        pytest.param(IdBlock(UNIT, UNIT), 'range picked for pod "b" already taken', id="another pod's block"),
    ],
)
def test_blocks_that_a_pod_cannot_have(block, message):
    blocks = IdBlocks(ids=SMALL)
    blocks.record(A, IdBlock(UNIT, UNIT))
    with pytest.raises(UserNamespaceError) as caught:
        blocks.record(B, block)
    assert str(caught.value) == f"user namespace: {message}"


def test_a_pod_keeps_its_block():
    blocks = IdBlocks(ids=SMALL)
    blocks.record(A, IdBlock(UNIT, UNIT))
    blocks.record(A, IdBlock(UNIT, UNIT))
    with pytest.raises(UserNamespaceError, match='different user namespace range already used by pod "a"'):
        blocks.record(A, IdBlock(2 * UNIT, UNIT))


def test_the_file_of_a_pod():
    data = encode_block(IdBlock(UNIT, UNIT))
    assert data == (
        b'{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],'
        b'"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}'
    )
    assert decode_block(data) == IdBlock(UNIT, UNIT)


@pytest.mark.parametrize(
    ("users", "groups", "message"),
    [
        pytest.param(
            [mapping(), mapping()], [mapping()], "no more than one mapping allowed.", id="two mappings of users"
        ),
        pytest.param(
            [mapping()], [mapping(), mapping()], "no more than one mapping allowed.", id="two mappings of groups"
        ),
        pytest.param(
            [mapping()], [mapping(2 * UNIT)], "GID and UID mappings should be identical.", id="users and groups differ"
        ),
        pytest.param([], [], "UID 0 must be mapped", id="none"),
        pytest.param([mapping(container=1)], [mapping(container=1)], "UID 0 must be mapped", id="without root"),
    ],
)
def test_files_that_break_a_rule(users, groups, message):
    data = json.dumps({"uidMappings": users, "gidMappings": groups}).encode()
    with pytest.raises(UserNamespaceError) as caught:
        decode_block(data)
    assert str(caught.value) == f"user namespace: invalid user namespace configuration: {message}"


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"uidMappings": 5}'])
def test_files_that_cannot_be_read(data):
    with pytest.raises(UserNamespaceError, match="user namespace: invalid user namespace mappings file: "):
        decode_block(data)
