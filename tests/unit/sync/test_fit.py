"""What `klet fit` answers: the verdict of admission, with all reasons, and nothing changed."""

import pytest
from msgspec.structs import replace

from klet.admission.chain import AdmissionChain
from klet.admission.checks import FeatureCheck, SysctlCheck
from klet.admission.loads import PodLoads
from klet.admission.predicate_check import PredicateCheck
from klet.admission.predicates import PredicateRules
from klet.allocation.book import AllocationBook
from klet.api.codec import convert
from klet.api.klet_v1_fit import FitPlacement, FitReason, FitResource
from klet.api.node import Node
from klet.api.security import PodSecurityContext, Sysctl
from klet.model.placement import ContainerPlacement, PlacementRefusal, PodPlacement
from klet.model.reasons import Reason
from klet.model.verdicts import Wait
from klet.sync.fit import FitPreview
from klet.testing.builders import make_container, make_pod, with_resources
from klet.testing.clock import ManualClock

NODE = convert(Node, {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}}})


def pod(name, cpu="", *, source="api", **spec):
    requests = {"cpu": cpu} if cpu else {}
    made = make_pod(with_resources(make_container("main"), requests=requests), name=name, uid=name, source=source)
    return replace(made, spec=replace(made.spec, **spec))


class KnownNode:
    def known(self):
        return NODE

    async def fetch(self):
        return NODE


class Placement:
    def __init__(self, found):
        self.found = found

    async def preview(self, pod):  # noqa: ARG002 - of the role
        return self.found


class Waiting:
    async def admit(self, pod, others):  # noqa: ARG002 - of the protocol
        return Wait("the plugin is not there yet")


async def look(new, *others, placement=None, before=(), gate=True):
    book = AllocationBook()
    loads = PodLoads(allocations=book, status_of=lambda each: each.status)
    chain = AdmissionChain(
        before=(*before, SysctlCheck(allowed=())),
        predicates=PredicateCheck(node=KnownNode(), rules=PredicateRules, loads=loads, allocations=book),
        after=(FeatureCheck(pod_level_resources=gate),),
    )
    fit = FitPreview(
        chain=chain,
        placement=placement or Placement(PodPlacement()),
        others_of=lambda _pod: others,
        clock=ManualClock(),
    )
    answer = await fit.look(new)
    assert book.pods() == frozenset()
    return answer


def reasons(answer):
    return [each.reason for each in answer.reasons]


async def test_a_pod_that_fits():
    answer = await look(pod("new", "500m"), pod("other", "1"))
    assert (answer.fits, answer.reasons, answer.victims, answer.source) == (True, (), (), "api")
    assert (answer.pod.namespace, answer.pod.name) == ("default", "new")
    assert answer.resources == (
        FitResource(resource="pods", requested="1", used="1", allocatable="3"),
        FitResource(resource="cpu", requested="500m", used="1", allocatable="2"),
    )


async def test_all_reasons_against_a_pod_in_the_order_of_admission():
    context = PodSecurityContext(sysctls=(Sysctl(name="kernel.panic", value="1"),))
    wanting = pod("new", "1500m", node_selector={"disk": "ssd"}, security_context=context)
    answer = await look(wanting, pod("other", "1"))
    assert (answer.fits, reasons(answer)) == (False, ["SysctlForbidden", "OutOfcpu", "NodeAffinity"])
    assert answer.reasons[1] == FitReason(
        reason="OutOfcpu",
        message="Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
        why="the pod requests 1500m of cpu; the node has 2 for pods, of which others have 1",
    )
    assert [each.resource for each in answer.resources if each.short] == ["cpu"]


async def test_who_would_be_stopped_for_a_critical_pod():
    answer = await look(pod("new", "1", source="file"), pod("small", "200m"), pod("large", "1700m"))
    assert (answer.fits, answer.source) == (True, "static")
    assert [(each.name, each.qos_class) for each in answer.victims] == [("large", "Burstable")]


async def test_nobody_would_be_stopped_for_a_pod_that_is_rejected_later():
    level = pod("new", source="file", resources=with_pod_level())
    answer = await look(level, *(pod(f"p{n}") for n in range(3)), gate=False)
    assert (answer.fits, reasons(answer), answer.victims) == (False, ["PodLevelResourcesNotSupported"], ())


def with_pod_level():
    return with_resources(make_container("any"), requests={"cpu": "1"}).resources


async def test_a_critical_pod_for_which_nobody_may_be_stopped():
    answer = await look(pod("new", "1500m", source="file"), pod("other", "1", source="file"))
    assert reasons(answer) == ["UnexpectedAdmissionError", "OutOfcpu"]
    assert answer.reasons[0].why.endswith("and too few of these may be stopped for it")


async def test_the_pod_that_it_takes_the_place_of_does_not_count():
    old = replace(pod("new", "2"), metadata=replace(pod("new").metadata, uid="before"))
    answer = await look(pod("new", "2"), old)
    assert (answer.fits, answer.replaces.uid) == (True, "before")


async def test_where_it_would_be_placed():
    place = ContainerPlacement(container="main", cpus=(2, 3), numa_nodes=(1,))
    answer = await look(pod("new", "2"), placement=Placement(PodPlacement(containers=(place,))))
    assert answer.placement == (FitPlacement(container="main", cpus=(2, 3), numa_nodes=(1,)),)


@pytest.mark.parametrize("cpu", ["1", "3"])
async def test_a_place_that_cannot_be_found_comes_before_what_is_missing(cpu):
    refusal = PlacementRefusal(reason=Reason.UNEXPECTED_ADMISSION_ERROR, message="no NUMA node has enough")
    answer = await look(pod("new", cpu), placement=Placement(PodPlacement(refusal=refusal)))
    assert reasons(answer) == ["UnexpectedAdmissionError", *(["OutOfcpu"] if cpu == "3" else [])]


async def test_what_admission_would_wait_for():
    answer = await look(pod("new"), before=(Waiting(),))
    assert answer.reasons == (FitReason(reason="", message="the plugin is not there yet"),)
    assert not answer.fits
