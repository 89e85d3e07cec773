"""What a volume gets of trust bundles."""

import asyncio
import random
from datetime import timedelta

import pytest

from klet.aio.broadcast import Broadcast
from klet.api.certificates import ClusterTrustBundle, ClusterTrustBundleSpec
from klet.api.meta import LabelSelector, ObjectMeta
from klet.api.volume import ClusterTrustBundleProjection
from klet.kube.informer import ObjectKey
from klet.model.objects import ANY_TRUST_BUNDLE
from klet.objectcache.errors import NoTrustAnchors
from klet.objectcache.trust_bundles import NoTrustBundles, TrustBundles, merge_anchors
from klet.testing.clock import ManualClock

ALL = LabelSelector()
LONG = LabelSelector(match_labels={f"key-{number}": "x" * 60 for number in range(2000)})
ONE = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
TWO = "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n"
TWO_LINES = "-----BEGIN CERTIFICATE-----\n" + "QUFB" * 16 + "\nQUFB\n-----END CERTIFICATE-----\n"


def pem(*texts: str) -> str:
    return "".join(f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n" for text in texts)


def wanted(name=None, signer=None, selector=None, *, optional=None):
    return ClusterTrustBundleProjection(
        name=name, signer_name=signer, label_selector=selector, optional=optional, path="ca.pem"
    )


class Followed:
    """Bundles that are there once a test says so."""

    def __init__(self):
        self.objects = {}
        self.runs = 0
        self.synced = asyncio.Event()
        self.broadcast = Broadcast[ObjectKey]()

    def put(self, name, text, version="1", signer="s"):
        self.objects[name] = ClusterTrustBundle(
            metadata=ObjectMeta(name=name, resource_version=version),
            spec=ClusterTrustBundleSpec(signer_name=signer, trust_bundle=text),
        )
        self.broadcast.send(ObjectKey("", name))

    def get(self, name):
        return self.objects.get(name)

    def all(self):
        return tuple(self.objects.values())

    @property
    def is_synced(self):
        return self.synced.is_set()

    async def until_synced(self):
        await self.synced.wait()

    def changes(self):
        return self.broadcast.subscribe()

    async def run(self):
        self.runs += 1
        await asyncio.Event().wait()


@pytest.fixture
def followed():
    return Followed()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def trust(followed, clock):
    made = TrustBundles(bundles=followed, randomness=random.Random(1), clock=clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.run())
        yield made
        task.cancel()


async def test_nothing_is_followed_before_somebody_asks(trust, followed, clock):
    await clock.run(timedelta())
    assert followed.runs == 0
    followed.synced.set()
    followed.put("b", pem("b25l"))
    assert await trust.anchors(wanted("b")) == pem("b25l").encode()
    await clock.run(timedelta())
    assert followed.runs == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(
            wanted("none"),
            'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "none" not found',
            id="a name that is not there",
        ),
        pytest.param(
            wanted(signer="other", selector=ALL),
            "combination of signerName and labelSelector matched zero ClusterTrustBundles",
            id="a signer without bundles",
        ),
        pytest.param(
            wanted(signer="s"),
            "combination of signerName and labelSelector matched zero ClusterTrustBundles",
            id="no selector",
        ),
        pytest.param(
            wanted(), "ClusterTrustBundle projection requires either name or signerName to be set", id="neither"
        ),
        pytest.param(
            wanted(signer="s", selector=LONG),
            "the labelSelector of a ClusterTrustBundle projection exceeds 102400 bytes",
            id="a selector that is too long",
        ),
    ],
)
async def test_what_is_not_there_is_reported(trust, followed, source, message):
    followed.synced.set()
    followed.put("b", pem("b25l"))
    with pytest.raises(NoTrustAnchors) as caught:
        await trust.anchors(source)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(wanted("none", optional=True), id="a name"),
        pytest.param(wanted(signer="other", selector=ALL, optional=True), id="a signer"),
    ],
)
async def test_what_is_optional_is_empty(trust, followed, source):
    followed.synced.set()
    assert await trust.anchors(source) == b""


async def test_a_server_that_shows_nothing_is_not_waited_for_for_ever(trust, clock):
    answer = asyncio.gather(trust.anchors(wanted("b")), return_exceptions=True)
    await clock.run(timedelta(seconds=9))
    assert not answer.done()
    await clock.run(timedelta(seconds=2))
    assert str((await answer)[0]) == "ClusterTrustBundle informer has not yet synced"


async def test_an_answer_stays_the_same_until_a_bundle_changes(trust, followed, clock):
    followed.synced.set()
    followed.put("b", pem(*(f"{letter * 4}" for letter in "ABCDEFGH")))
    with trust.changes() as changes:
        first = await trust.anchors(wanted(signer="s", selector=ALL))
        assert {await trust.anchors(wanted(signer="s", selector=ALL)) for _ in range(5)} == {first}
        await clock.run(timedelta())
        changes.drain()
        followed.put("b", pem("b25l"), version="2")
        assert await changes.get() == ANY_TRUST_BUNDLE
        assert await trust.anchors(wanted(signer="s", selector=ALL)) == pem("b25l").encode()


async def test_a_node_that_has_none_says_so():
    with pytest.raises(NoTrustAnchors, match="not supported in static kubelet mode"):
        await NoTrustBundles().anchors(wanted("b"))
    with pytest.raises(NoTrustAnchors, match="requires either name or signerName"):
        await NoTrustBundles().anchors(wanted())


def bundle(text: str = ONE, name: str = "b", signer: str = "s", **labels: str) -> ClusterTrustBundle:
    spec = ClusterTrustBundleSpec(signer_name=signer, trust_bundle=text)
    return ClusterTrustBundle(metadata=ObjectMeta(name=name, labels=labels), spec=spec)


def merged(*texts: str, seed: int = 1) -> str:
    return merge_anchors([bundle(text) for text in texts], randomness=random.Random(seed)).decode()


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([ONE], {ONE}, id="one"),
        pytest.param([ONE + TWO], {ONE, TWO}, id="two of one bundle"),
        pytest.param([ONE, TWO + ONE], {ONE, TWO}, id="each once"),
        pytest.param([f"a comment\n{ONE}another\n"], {ONE}, id="text between them is left out"),
        pytest.param([ONE.replace("b25l", "k: v\n\nb25l")], {ONE}, id="headers are left out"),
        pytest.param([ONE.replace("CERTIFICATE", "X509 CERTIFICATE")], {ONE}, id="whatever it is called"),
        pytest.param([ONE.replace("\n", "\r\n")], {ONE}, id="other line ends"),
        pytest.param([TWO_LINES.replace("\nQUFB\n", "QUFB\n")], {TWO_LINES}, id="lines are broken again"),
        pytest.param([ONE.replace("b25l", "b25"), TWO], {TWO}, id="a damaged one is left out"),
        pytest.param([], set(), id="none"),
    ],
)
def test_merge(texts, expected):
    found = merged(*texts)
    assert sorted(found.split("-----END CERTIFICATE-----\n")[:-1]) == sorted(
        each.removesuffix("-----END CERTIFICATE-----\n") for each in expected
    )


def test_no_order_can_be_relied_on():
    many = [ONE.replace("b25l", text) for text in ("AAAA", "BBBB", "CCCC", "DDDD", "EEEE")]
    assert len({merged(*many, seed=seed) for seed in range(8)}) > 1
