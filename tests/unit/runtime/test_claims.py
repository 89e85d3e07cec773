"""Which ResourceClaims pods and containers use."""

import pytest
from msgspec.structs import replace

from klet.api.container import ResourceClaim, ResourceRequirements
from klet.api.pod import (
    ContainerExtendedResourceRequest,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodStatus,
)
from klet.runtime.claims import ClaimsNotPrepared, NoClaims, find_container_claims
from klet.testing.builders import make_pod

BY_NAME = PodResourceClaim(name="gpu", resource_claim_name="shared-gpu")
BY_TEMPLATE = PodResourceClaim(name="gpu", resource_claim_template_name="gpus")
BY_NOTHING = PodResourceClaim(name="gpu")
NOT_BUILT = "klet does not prepare ResourceClaims (DRA) yet"
EXTENDED = PodExtendedResourceClaimStatus(
    request_mappings=(
        ContainerExtendedResourceRequest(container_name="main", resource_name="example.com/gpu", request_name="r-0"),
    ),
    resource_claim_name="pod-extended-resources",
)


def claiming(*claims, made=(), extended=None):
    pod = make_pod("main", "other")
    status = PodStatus(resource_claim_statuses=made, extended_resource_claim_status=extended)
    return replace(pod, spec=replace(pod.spec, resource_claims=claims), status=status)


def made(name):
    return (PodResourceClaimStatus(name="gpu", resource_claim_name=name),)


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param(claiming(), "", id="no claims"),
        pytest.param(claiming(BY_NAME), f"ResourceClaim shared-gpu: {NOT_BUILT}", id="by its name"),
        pytest.param(
            claiming(BY_TEMPLATE, made=made("pod-gpu-x7k")),
            f"ResourceClaim pod-gpu-x7k: {NOT_BUILT}",
            id="made from a template",
        ),
        pytest.param(claiming(BY_TEMPLATE, made=made(None)), "", id="a template of which none is needed"),
        pytest.param(
            claiming(BY_TEMPLATE),
            'pod "default/pod": ResourceClaim not created yet',
            id="not made from its template yet",
        ),
        pytest.param(
            claiming(BY_NOTHING),
            'pod "default/pod", spec.resourceClaim "gpu": none of the supported fields are set',
            id="a way to name a claim that is too new",
        ),
        pytest.param(
            claiming(extended=EXTENDED),
            f"ResourceClaim pod-extended-resources: {NOT_BUILT}",
            id="only extended resources that the scheduler made a claim of",
        ),
        pytest.param(
            claiming(BY_NAME, extended=EXTENDED),
            f"ResourceClaim shared-gpu, pod-extended-resources: {NOT_BUILT}",
            id="several",
        ),
    ],
)
async def test_claims_of_a_pod(pod, message):
    if not message:
        await NoClaims().prepare(pod)
        return
    with pytest.raises(ClaimsNotPrepared) as raised:
        await NoClaims().prepare(pod)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("pod", "container", "claims", "expected"),
    [
        pytest.param(claiming(BY_NAME), "main", ("gpu",), ("shared-gpu",), id="one that it uses"),
        pytest.param(claiming(BY_NAME), "other", (), (), id="one that only its neighbour uses"),
        pytest.param(claiming(BY_TEMPLATE, made=made(None)), "main", ("gpu",), (), id="one that is not needed"),
        pytest.param(claiming(extended=EXTENDED), "main", (), ("pod-extended-resources",), id="extended resources"),
        pytest.param(claiming(extended=EXTENDED), "other", (), (), id="extended resources of its neighbour"),
        pytest.param(claiming(BY_TEMPLATE), "other", (), (), id="none, while its neighbour's is not made yet"),
    ],
)
def test_claims_of_a_container(pod, container, claims, expected):
    given = ResourceRequirements(claims=tuple(ResourceClaim(name=name) for name in claims))
    assert find_container_claims(pod, container, given) == expected
