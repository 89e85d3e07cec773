"""Claims of pods are looked up one by one, and again while they lead to nothing."""

import asyncio

import pytest

from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.storage import PersistentVolume
from klet.model.allocation import desired_allocation
from klet.model.objects import ObjectMissing
from klet.testing.clock import SteppingClock
from klet.volumes.claims import claim_of
from klet.volumes.pod_claims import ClaimKey, PodClaims

ERROR = "error processing PVC ns/c: "
KEY = ClaimKey("u", "v")


class Server:
    """A claim and a volume, as a test wants them; notes what is asked for."""

    def __init__(self):
        self.asked = []
        self.phase = "Bound"
        self.volume_name = "pv"
        self.found_name = "pv"
        self.claim_error = None
        self.volume_error = None
        self.gate = None
        self.reached = asyncio.Event()

    async def claim(self, namespace, name):
        self.asked.append(f"{namespace}/{name}")
        self.reached.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.claim_error is not None:
            raise self.claim_error
        meta = {"name": name, "namespace": namespace, "uid": "claim"}
        body = {"metadata": meta, "spec": {"volumeName": self.volume_name}, "status": {"phase": self.phase}}
        return convert(PersistentVolumeClaim, body)

    async def persistent_volume(self, name):
        self.asked.append(name)
        if self.volume_error is not None:
            raise self.volume_error
        spec = {"hostPath": {"path": "/"}, "volumeMode": "Filesystem", "claimRef": {"uid": "claim"}}
        return convert(PersistentVolume, {"metadata": {"name": self.found_name}, "spec": spec})


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def claims(server):
    return PodClaims(reader=server, clock=SteppingClock())


@pytest.fixture
def want(claims, pod_with):
    def call(name="c"):
        pod = pod_with({"persistentVolumeClaim": {"claimName": name}})
        volume = pod.spec.volumes[0]
        return claims.want(pod, desired_allocation(pod), volume, claim_of(pod, volume)).spec

    return call


async def test_a_claim_leads_to_its_volume(server, claims, want):
    assert want() is None
    assert claims.is_pending("u")
    known = await claims.look_up(await claims.next())
    assert (known.spec.name, known.error) == ("pv", "")
    assert server.asked == ["ns/c", "pv"]
    assert (claims.is_pending("u"), claims.errors("u")) == (False, ())


async def test_a_claim_that_led_to_a_volume_is_not_looked_up_again(server, claims, want):
    want()
    known = await claims.look_up(await claims.next())
    assert want() is known.spec
    assert (len(server.asked), claims.is_pending("u")) == (2, False)


def missing(text):
    return ObjectMissing(text)


@pytest.mark.parametrize(
    ("name", "change", "error", "asked"),
    [
        pytest.param("c", {"phase": "Pending"}, f"{ERROR}PVC is not bound", ["ns/c"], id="it is not bound"),
        pytest.param(
            "c",
            {"claim_error": missing("no claim")},
            f"{ERROR}failed to fetch PVC from API server: no claim",
            ["ns/c"],
            id="it is missing",
        ),
        pytest.param(
            "c",
            {"volume_error": missing("no volume")},
            f"{ERROR}failed to fetch PV pv from API server: no volume",
            ["ns/c", "pv"],
            id="its volume is missing",
        ),
        pytest.param(
            "c",
            {"claim_error": RuntimeError("a bug")},
            "RuntimeError: a bug",
            ["ns/c"],
            id="an error that nobody expects",
        ),
        pytest.param(
            "c",
            {"found_name": "../../etc"},
            f"{ERROR}the API server returned another PV than pv",
            ["ns/c", "pv"],
            id="the API server returns another volume",
        ),
        pytest.param(
            "c", {"volume_name": "../../x"}, f"{ERROR}invalid pvc.Spec.VolumeName: ", ["ns/c"], id="a way out of a URL"
        ),
        pytest.param("c", {"volume_name": "a/b"}, f"{ERROR}invalid pvc.Spec.VolumeName: ", ["ns/c"], id="two names"),
        pytest.param("c", {"volume_name": ".."}, f"{ERROR}invalid pvc.Spec.VolumeName: ", ["ns/c"], id="a step back"),
        pytest.param("c", {"volume_name": "x\0"}, f"{ERROR}invalid pvc.Spec.VolumeName: ", ["ns/c"], id="a NUL"),
        pytest.param(
            "c", {"volume_name": "a" * 300}, f"{ERROR}invalid pvc.Spec.VolumeName: ", ["ns/c"], id="a long name"
        ),
        pytest.param(
            "../../secrets/x",
            {},
            "error processing PVC ns/../../secrets/x: invalid claim name: ",
            [],
            id="a claim with a hostile name is not even asked for",
        ),
    ],
)
async def test_why_a_claim_leads_to_nothing(server, claims, want, name, change, error, asked):
    for key, value in change.items():
        setattr(server, key, value)
    want(name)
    known = await claims.look_up(await claims.next())
    assert known.spec is None
    [found] = claims.errors("u")
    assert found.startswith(error)
    assert server.asked == asked
    assert not claims.is_pending("u")


async def test_a_long_error_is_shortened(server, claims, want):
    server.claim_error = missing("x" * 100_000)
    want()
    await claims.look_up(await claims.next())
    [found] = claims.errors("u")
    assert len(found) < 2000


async def test_a_claim_is_looked_up_again_when_it_is_wanted_again(server, claims, want):
    server.phase = "Pending"
    want()
    await claims.look_up(await claims.next())
    server.phase = "Bound"
    assert want() is None
    assert (claims.is_pending("u"), claims.errors("u")) == (True, ())
    await claims.look_up(await claims.next())
    assert want().name == "pv"


async def test_a_lookup_that_is_under_way_is_not_repeated(server, claims, want):
    server.gate = asyncio.Event()
    want()
    async with asyncio.TaskGroup() as group:
        lookup = group.create_task(claims.look_up(await claims.next()))
        want()
        want()
        server.gate.set()
    assert lookup.result().spec is not None
    assert server.asked == ["ns/c", "pv"]


async def test_a_pod_that_goes_during_the_lookup(server, claims, want):
    server.gate = asyncio.Event()
    want()
    async with asyncio.TaskGroup() as group:
        lookup = group.create_task(claims.look_up(await claims.next()))
        await server.reached.wait()
        claims.forget_pod("u")
        server.gate.set()
    assert lookup.result() is None
    assert (claims.is_pending("u"), claims.errors("u")) == (False, ())


async def test_a_pod_that_is_gone_is_not_looked_up(server, claims, want):
    want()
    key = await claims.next()
    assert key == KEY
    claims.forget_pod("u")
    assert await claims.look_up(key) is None
    assert server.asked == []
