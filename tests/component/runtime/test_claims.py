"""Pods with ResourceClaims on the fake runtime: nothing starts without its devices, and nothing is disturbed."""

from datetime import timedelta

from msgspec.structs import replace

from klet.api.container import ResourceClaim, ResourceRequirements
from klet.api.pod import PodResourceClaim
from klet.runtime.sandboxes import CLAIMS_PAUSE
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import Script
from klet.testing.fake_runtime.lives import by_name, runs_for

NOT_BUILT = "ResourceClaim shared-gpu: klet does not prepare ResourceClaims (DRA) yet"
FAILED = f"Failed to prepare dynamic resources: prepare dynamic resources: {NOT_BUILT}"
USING = replace(make_container("gpu"), resources=ResourceRequirements(claims=(ResourceClaim(name="gpu"),)))


def claiming(*containers):
    pod = make_pod(*containers)
    claims = (PodResourceClaim(name="gpu", resource_claim_name="shared-gpu"),)
    return replace(pod, spec=replace(pod.spec, resource_claims=claims))


def test_a_pod_with_a_claim_gets_no_sandbox_and_is_tried_again(on_bench):
    async def test(bench) -> None:
        pod = claiming(USING)
        for _ in range(2):
            began = bench.clock.now()
            outcome = await bench.sync(pod)
            assert (outcome.errors, outcome.retry_at) == ((FAILED,), began + CLAIMS_PAUSE)
            assert bench.sandboxes.waits_until(pod) == outcome.retry_at
            await bench.sleep(CLAIMS_PAUSE.total_seconds())
            assert bench.sandboxes.waits_until(pod) is None
        assert bench.called() == []
        assert await bench.events() == [("FailedPrepareDynamicResources", FAILED)] * 2

    on_bench(test)


def test_a_claim_that_is_no_longer_there_holds_nothing_back(on_bench):
    async def test(bench) -> None:
        await bench.sync(claiming(USING))
        bench.sandboxes.forget("uid-1")
        assert bench.sandboxes.waits_until(claiming(USING)) is None
        assert not (await bench.sync(make_pod("gpu"))).errors

    on_bench(test)


def test_a_container_of_a_pod_that_already_runs_is_not_started_without_its_devices(on_bench):
    """Another kubelet started the pod. What ran on goes on, and a container that uses no claim is started again."""

    async def test(bench) -> None:
        await bench.sync(make_pod("gpu", "quick", "calm"))
        await bench.sleep(30)
        outcome = await bench.sync(claiming(USING, "quick", "calm"))
        assert {name: (each.reason, each.message) for name, each in outcome.failures.items()} == {
            "gpu": ("CreateContainerConfigError", NOT_BUILT)
        }
        assert outcome.started == {"quick"}
        assert bench.called().count("StopContainer") == 0
        assert ("Failed", f"Error: {NOT_BUILT}") in await bench.events()

    lives = by_name({name: lambda _: runs_for(timedelta(seconds=20), 1) for name in ("gpu", "quick")})
    on_bench(test, Script(lives=lives))
