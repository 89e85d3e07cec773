"""An API server for one node that does what a test asks for, and drafts of the node."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from klet.api.codec import convert, to_builtins
from klet.api.coordination import Lease
from klet.api.meta import ObjectMeta, Status
from klet.api.node import Node, NodeCondition, NodeStatus
from klet.api.patches.strategic import apply_strategic_patch
from klet.api.times import Time
from klet.kube.errors import AlreadyExists, NotFound, Unreachable
from klet.node.composer import Draft, has_changed
from klet.testing.loop import EPOCH

DOWN = Unreachable("connection refused")


@dataclass
class OneNodeApi:
    """Holds one node and its lease. Each call first takes a failure that was planned for it."""

    node: Node | None = None
    lease: Lease | None = None
    calls: list[str] = field(default_factory=list)
    failures: dict[str, list[Exception]] = field(default_factory=dict)
    version: int = 10

    def fail(self, call: str, *errors: Exception) -> None:
        self.failures.setdefault(call, []).extend(errors)

    def count(self, call: str) -> int:
        return self.calls.count(call)

    async def get(self, struct, name, _namespace=""):
        self._take("get lease" if struct is Lease else "get")
        found = self.lease if struct is Lease else self.node
        if found is None:
            raise NotFound(Status(code=404, message=f'"{name}" not found'))
        return found

    async def create(self, obj, _namespace=""):
        self._take("create lease" if isinstance(obj, Lease) else "create")
        if isinstance(obj, Lease):
            self.lease = self._written(obj)
            return self.lease
        if self.node is not None:
            raise AlreadyExists(Status(code=409, reason="AlreadyExists"))
        self.node = self._written(obj)
        return self.node

    async def update(self, obj, _name, _namespace):
        self._take("update lease")
        self.lease = self._written(obj)
        return self.lease

    async def patch(self, _struct, _name, *, patch, subresource):
        self._take(f"patch {subresource}")
        if self.node is None:
            raise NotFound(Status(code=404))
        self.node = self._written(convert(Node, apply_strategic_patch(to_builtins(self.node), patch, Node)))
        return self.node

    def _take(self, call: str) -> None:
        self.calls.append(call)
        if planned := self.failures.get(call):
            raise planned.pop(0)

    def _written(self, obj):
        self.version += 1
        return replace(obj, metadata=replace(obj.metadata, resource_version=str(self.version)))


@dataclass
class ScriptedComposer:
    """Says of the node what `ready` says, at the second of the clock."""

    clock: object
    ready: bool = True
    findings: tuple = ()

    async def compose_initial(self) -> Draft:
        return await self.compose(Node(metadata=ObjectMeta(name="n1")))

    async def compose(self, original: Node) -> Draft:
        now = Time.of(self.clock.now())
        status = "True" if self.ready else "False"
        condition = NodeCondition(type="Ready", status=status, last_heartbeat_time=now)
        node = replace(original, status=replace(original.status, conditions=(condition,)))
        return Draft(original, node, has_changed(original.status, node.status), self.findings)

    def settle(self, _node, findings):
        return tuple(findings)


def make_node(*, ready: bool | None = None, uid: str = "u1", version: str = "1") -> Node:
    conditions = ()
    if ready is not None:
        status = "True" if ready else "False"
        conditions = (NodeCondition(type="Ready", status=status, last_heartbeat_time=Time.of(EPOCH)),)
    metadata = ObjectMeta(name="n1", uid=uid, resource_version=version)
    return Node(metadata=metadata, status=NodeStatus(conditions=conditions))


@pytest.fixture
def api() -> OneNodeApi:
    return OneNodeApi()


@pytest.fixture
def down() -> Unreachable:
    return DOWN


@pytest.fixture
def composer_of():
    return ScriptedComposer


@pytest.fixture
def node_of():
    return make_node
