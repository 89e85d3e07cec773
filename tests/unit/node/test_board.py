"""The node's object for everyone."""

import pytest

from klet.api.meta import ObjectMeta
from klet.api.node import Node, NodeAddress, NodeStatus
from klet.node.board import NodeBoard, newer_of


def node(version: str, *addresses: str) -> Node:
    shown = tuple(NodeAddress(type="InternalIP", address=address) for address in addresses)
    return Node(metadata=ObjectMeta(name="n1", resource_version=version), status=NodeStatus(addresses=shown))


OLD, NEW, ODD = node("9"), node("10"), node("x")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(None, None, None, id="nobody knows it"),
        pytest.param(OLD, None, OLD, id="only the first knows it"),
        pytest.param(None, OLD, OLD, id="only the second knows it"),
        pytest.param(OLD, NEW, NEW, id="versions are numbers"),
        pytest.param(NEW, OLD, NEW, id="whichever comes first"),
        pytest.param(ODD, OLD, OLD, id="a version that is none is old"),
    ],
)
def test_newer_of(first, second, expected):
    assert newer_of(first, second) is expected


async def test_the_board_publishes_changes_and_keeps_addresses():
    board = NodeBoard()
    with board.changes() as changes:
        board.put(node("1", "10.0.0.1"))
        board.put(node("1", "10.0.0.1"))
        assert len(changes.drain()) == 1
    await board.until_known()
    board.forget()
    assert board.node is None
    assert [each.address for each in board.addresses] == ["10.0.0.1"]
