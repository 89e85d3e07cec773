"""When a lease is renewed, and what is written."""

import asyncio
import random
from datetime import timedelta

from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.codec import to_builtins
from klet.api.coordination import Lease, LeaseSpec
from klet.api.meta import ObjectMeta, Status
from klet.kube.errors import Conflict
from klet.node.lease import LeaseKeeper, LeaseTerms, build_lease, owned, renewed
from klet.testing.loop import EPOCH, run_virtual

TERMS = LeaseTerms("n1")
CONFLICT = Conflict(Status(code=409, reason="Conflict"))


class Keeper:
    """A lease keeper in virtual time."""

    def __init__(self, api):
        self.clock = LoopClock(epoch=EPOCH)
        self.hooks = 0
        self.node_known = asyncio.Event()
        self.keeper = LeaseKeeper(
            api=api,
            terms=TERMS,
            until_node=self._until_node,
            on_failure=self._hook,
            clock=self.clock,
            randomness=random.Random(3),
        )

    async def _until_node(self) -> None:
        await self.node_known.wait()

    async def _hook(self) -> None:
        self.hooks += 1

    async def run_for(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.keeper.run())
            await self.clock.sleep(timedelta(seconds=seconds))
            task.cancel()


def test_the_lease_on_the_wire(node_of):
    lease = owned(renewed(build_lease(TERMS), TERMS, now=EPOCH), node_of())
    assert to_builtins(lease) == {
        "metadata": {
            "name": "n1",
            "namespace": "kube-node-lease",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}],
        },
        "spec": {
            "holderIdentity": "n1",
            "leaseDurationSeconds": 40,
            "renewTime": "2030-01-01T00:00:00.000000Z",
        },
    }


def test_a_renewal_leaves_the_holder():
    theirs = Lease(spec=LeaseSpec(holder_identity="other", lease_transitions=3))
    assert renewed(theirs, TERMS, now=EPOCH).spec.holder_identity == "other"
    assert renewed(theirs, TERMS, now=EPOCH).spec.lease_transitions == 3


def test_four_renewals_in_the_time_it_holds(api, node_of):
    api.node = node_of()
    run_virtual(run_keeper(api, 41.7))
    assert api.count("create lease") == 1
    assert api.count("update lease") == 4
    assert api.count("get lease") == 1


async def run_keeper(api, seconds: float) -> int:
    keeper = Keeper(api)
    await keeper.run_for(seconds)
    return keeper.hooks


def test_without_a_node_it_waits_a_period_and_looks_again(api):
    run_virtual(run_keeper(api, 21))
    assert api.calls == ["get lease", "get"] * 3


def test_the_node_that_comes_is_not_waited_out(api, node_of):
    async def run() -> None:
        keeper = Keeper(api)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(keeper.keeper.run())
            await keeper.clock.sleep(timedelta(seconds=1))
            api.node = node_of()
            keeper.node_known.set()
            await keeper.clock.sleep(timedelta(seconds=1))
            task.cancel()

    run_virtual(run())
    assert api.lease is not None


def test_a_node_that_is_known_and_cannot_be_read_is_not_asked_for_without_a_pause(api, down):
    async def run() -> None:
        keeper = Keeper(api)
        keeper.node_known.set()
        await keeper.run_for(9)

    api.fail("get", *[down] * 50)
    run_virtual(run())
    assert api.count("get") == 2


def test_a_conflict_is_no_failure(api, node_of):
    api.node = node_of()
    api.lease = Lease(metadata=ObjectMeta(name="n1"))
    api.fail("update lease", CONFLICT)
    assert run_virtual(run_keeper(api, 1)) == 0
    assert api.calls == ["get lease", "get", "update lease", "get lease", "get", "update lease"]


def test_five_tries_then_it_is_looked_for(api, node_of, down):
    api.node = node_of()
    api.lease = owned(build_lease(TERMS), node_of())
    api.fail("update lease", *[down] * 5)
    assert run_virtual(run_keeper(api, 11)) == 4
    assert api.calls[:6] == ["get lease", *["update lease"] * 5]
    assert api.calls[6:] == ["update lease"]


def test_an_owner_that_cannot_be_read_is_a_failed_try(api, node_of, down):
    api.node = node_of()
    api.lease = build_lease(TERMS)
    api.fail("get", down, down)
    assert run_virtual(run_keeper(api, 1)) == 1
    assert api.lease.metadata.owner_references[0].uid == "u1"


def test_pauses_while_the_server_is_away(api, node_of, down):
    api.node = node_of()
    api.lease = owned(build_lease(TERMS), replace(node_of()))
    api.fail("get lease", *[down] * 8)
    # 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7, 7
    run_virtual(run_keeper(api, 26.5))
    assert (api.count("get lease"), api.count("update lease")) == (8, 0)
    run_virtual(run_keeper(api, 0.2))
    assert api.count("update lease") == 1
