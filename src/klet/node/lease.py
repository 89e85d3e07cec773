"""Renews the node's lease, by which the control plane knows that it is alive (upstream: the lease controller)."""

import logging
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.api.coordination import Lease, LeaseSpec
from klet.api.meta import ObjectMeta, OwnerReference
from klet.api.node import Node
from klet.api.times import MicroTime
from klet.errors import level_for
from klet.kube.errors import Conflict, KubeError, NotFound

logger = logging.getLogger(__name__)

NAMESPACE: Final = "kube-node-lease"
RENEWALS: Final = 4
"""In the time that a lease holds."""
JITTER: Final = 0.04
TRIES: Final = 5
FIRST_DELAY: Final = timedelta(milliseconds=200)
LONGEST_DELAY: Final = timedelta(seconds=7)

T = TypeVar("T", Lease, Node)


class LeaseApi(Protocol):
    """Leases, and the node that owns them; raises KubeError."""

    async def get(self, struct: type[T], name: str, namespace: str = "") -> T: ...

    async def create(self, obj: Lease, namespace: str) -> Lease: ...

    async def update(self, obj: Lease, name: str, namespace: str) -> Lease: ...


class LeaseTerms(Struct, frozen=True):
    """Whose lease it is, and how long it holds without a renewal."""

    node: str
    duration: timedelta = timedelta(seconds=40)


class _NotYet(Struct, frozen=True):
    """There is no node that a lease could belong to."""


class LeaseKeeper:
    """Keeps the lease. It is never deleted: it goes with its node."""

    def __init__(
        self,
        *,
        api: LeaseApi,
        terms: LeaseTerms,
        until_node: Callable[[], Awaitable[None]],
        on_failure: Callable[[], Awaitable[None]],
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._api = api
        self._terms = terms
        self._until_node = until_node
        """Returns when the node is known to be there."""
        self._on_failure = on_failure
        self._clock = clock
        self._randomness = randomness
        self._lease: Lease | None = None
        self._awaits_node = True

    async def run(self) -> None:
        while True:
            await self.renew()
            pause = self._terms.duration / RENEWALS * (1 + JITTER * self._randomness.random())
            if self._lease is None and self._awaits_node:
                await first_of(self._wait_for_node(), self._clock.sleep(pause))
            else:
                await self._clock.sleep(pause)

    async def renew(self) -> None:
        """Renew the lease as it was last seen; if that fails, look at what is there."""
        if self._lease is not None and await self._update(self._lease):
            return
        found = await self._ensure()
        self._lease = None if isinstance(found, _NotYet) else found.lease
        if not isinstance(found, _NotYet) and not found.is_new and not await self._update(found.lease):
            logger.error("Will retry updating lease", extra={"node": self._terms.node})

    async def _update(self, base: Lease) -> bool:
        for attempt in range(TRIES):
            try:
                lease = await self._prepared(base)
                self._lease = await self._api.update(lease, self._terms.node, NAMESPACE)
                return True
            except Conflict as error:
                logger.warning("Failed to update lease", extra={"node": self._terms.node, "error": str(error)})
                found = await self._ensure()
                if not isinstance(found, _NotYet):
                    base = found.lease
                continue
            except KubeError as error:
                extra = {"node": self._terms.node, "error": str(error)}
                logger.log(level_for(error), "Failed to update lease", extra=extra)
            if attempt > 0:
                await self._on_failure()
        return False

    async def _ensure(self) -> "_Found | _NotYet":
        """Return the lease that is there, made if need be."""
        for delay in exponential_delays(first=FIRST_DELAY, longest=LONGEST_DELAY):
            try:
                return await self._get_or_create()
            except KubeError as error:
                extra = {"node": self._terms.node, "error": str(error)}
                logger.log(level_for(error), "Failed to ensure lease exists, will retry", extra=extra)
                await self._clock.sleep(delay)
        raise AssertionError("there is always another delay")

    async def _get_or_create(self) -> "_Found | _NotYet":
        try:
            return _Found(await self._api.get(Lease, self._terms.node, NAMESPACE), is_new=False)
        except NotFound:
            pass
        try:
            lease = await self._prepared(build_lease(self._terms))
        except KubeError as error:
            extra = {"node": self._terms.node, "error": str(error)}
            logger.log(level_for(error, logging.INFO), "Node lease not made: no node yet", extra=extra)
            return _NotYet()
        return _Found(await self._api.create(lease, NAMESPACE), is_new=True)

    async def _prepared(self, base: Lease) -> Lease:
        lease = renewed(base, self._terms, now=self._clock.now())
        if lease.metadata.owner_references:
            return lease
        node = await self._api.get(Node, self._terms.node)
        return owned(lease, node)

    async def _wait_for_node(self) -> None:
        await self._until_node()
        self._awaits_node = False  # from now on a failure is no matter of waiting for it


class _Found(Struct, frozen=True):
    lease: Lease
    is_new: bool


def build_lease(terms: LeaseTerms) -> Lease:
    """Return a lease before it is renewed for the first time."""
    return Lease(
        metadata=ObjectMeta(name=terms.node, namespace=NAMESPACE),
        spec=LeaseSpec(holder_identity=terms.node),
    )


def renewed(lease: Lease, terms: LeaseTerms, *, now: datetime) -> Lease:
    """Return the lease with the present time and duration; its holder is only written when it is made."""
    seconds = int(terms.duration.total_seconds())
    spec = replace(lease.spec, renew_time=MicroTime.of(now), lease_duration_seconds=seconds)
    return replace(lease, spec=spec)


def owned(lease: Lease, node: Node) -> Lease:
    """Return the lease as a belonging of the node."""
    owner = OwnerReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)
    return replace(lease, metadata=replace(lease.metadata, owner_references=(owner,)))
