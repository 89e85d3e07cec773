"""Trust bundles of the cluster, for the volumes that show them (ClusterTrustBundle manager).

Nothing is followed before the first volume asks: few nodes have one that does. Files show the root certificates of all
bundles that fit.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

from klet.aio.broadcast import Broadcast, Subscription
from klet.aio.clock import Clock
from klet.api.certificates import ClusterTrustBundle
from klet.api.selectors import label_selector
from klet.api.volume import ClusterTrustBundleProjection
from klet.kube.informer import ObjectKey
from klet.model.objects import ANY_TRUST_BUNDLE, ObjectRef, choose_bundles
from klet.model.pem_blocks import read_blocks, write_certificate
from klet.objectcache.errors import NoTrustAnchors

SYNC_PATIENCE: Final = timedelta(seconds=10)
LONGEST_SELECTOR: Final = 102_400
MOST_KEPT: Final = 256

_NOT_SUPPORTED: Final = "ClusterTrustBundle projection is not supported in static kubelet mode"
_NEITHER: Final = "ClusterTrustBundle projection requires either name or signerName to be set"
_NONE_MATCHES: Final = "combination of signerName and labelSelector matched zero ClusterTrustBundles"


class FollowedBundles(Protocol):
    """All trust bundles of the cluster, as the API server has them: kube's informer."""

    def get(self, name: str) -> ClusterTrustBundle | None: ...

    def all(self) -> tuple[ClusterTrustBundle, ...]: ...

    @property
    def is_synced(self) -> bool: ...

    async def until_synced(self) -> None: ...

    def changes(self) -> Subscription[ObjectKey]: ...

    async def run(self) -> None: ...


class NoTrustBundles:
    """The trust bundles of a node that has none: there is no API server, or the feature is off."""

    async def anchors(self, source: ClusterTrustBundleProjection) -> bytes:
        raise NoTrustAnchors(_NEITHER if source.name is None and source.signer_name is None else _NOT_SUPPORTED)

    def changes(self) -> Subscription[ObjectRef]:
        return Broadcast[ObjectRef]().subscribe()


class TrustBundles:
    """Answers what a volume is to show, the same each time while the bundles are the same."""

    def __init__(self, *, bundles: FollowedBundles, randomness: random.Random, clock: Clock) -> None:
        self._bundles = bundles
        self._randomness = randomness
        self._clock = clock
        self._wanted = asyncio.Event()
        self._changes = Broadcast[ObjectRef]()
        self._kept = OrderedDict[tuple[tuple[str, str], ...], bytes]()
        """By the names and versions of the bundles that it was made of."""

    async def run(self) -> None:
        await self._wanted.wait()
        with self._bundles.changes() as changes:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._bundles.run(), name="trust bundles")
                await self._bundles.until_synced()
                while True:
                    changes.drain()
                    self._changes.send(ANY_TRUST_BUNDLE)
                    await changes.get()

    async def anchors(self, source: ClusterTrustBundleProjection) -> bytes:
        """Return the certificates that a source asks for; raises NoTrustAnchors if there are none and that matters."""
        if source.name is None and source.signer_name is None:
            raise NoTrustAnchors(_NEITHER)
        self._wanted.set()
        if not self._bundles.is_synced:
            await self._clock.wait(self._bundles.until_synced(), at_most=SYNC_PATIENCE)
        if not self._bundles.is_synced:
            raise NoTrustAnchors("ClusterTrustBundle informer has not yet synced")
        found = self._find(source)
        if isinstance(found, str):
            if source.optional:
                return b""
            raise NoTrustAnchors(found)
        return self._merged(found)

    def changes(self) -> Subscription[ObjectRef]:
        """Subscribe to changes. All are published under one reference: volumes with these sources are few."""
        return self._changes.subscribe()

    def _find(self, source: ClusterTrustBundleProjection) -> Sequence[ClusterTrustBundle] | str:
        """Return the bundles, or why there are none."""
        if source.name is not None:
            bundle = self._bundles.get(source.name)
            missing = f'clustertrustbundle.certificates.k8s.io "{source.name}" not found'
            return f"while getting ClusterTrustBundle: {missing}" if bundle is None else (bundle,)
        assert source.signer_name is not None  # one of them is there
        if len(str(label_selector(source.label_selector))) > LONGEST_SELECTOR:
            raise NoTrustAnchors(
                f"the labelSelector of a ClusterTrustBundle projection exceeds {LONGEST_SELECTOR} bytes"
            )
        found = choose_bundles(self._bundles.all(), signer=source.signer_name, selector=source.label_selector)
        return found or _NONE_MATCHES

    def _merged(self, bundles: Sequence[ClusterTrustBundle]) -> bytes:
        key = tuple(sorted((each.metadata.name, each.metadata.resource_version) for each in bundles))
        if key not in self._kept:
            self._kept[key] = merge_anchors(bundles, randomness=self._randomness)
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]


def merge_anchors(bundles: Sequence[ClusterTrustBundle], *, randomness: random.Random) -> bytes:
    """Return every certificate once, in random order: users must not rely on one."""
    found = list(dict.fromkeys(block for bundle in bundles for block in read_blocks(bundle.spec.trust_bundle)))
    randomness.shuffle(found)
    return b"".join(map(write_certificate, found))
