"""What admitted pods take together, without computing it again for each of them."""

from klet.admission.loads import PodLoads
from klet.api.codec import convert
from klet.api.pod import PodStatus
from klet.model.allocation import desired_allocation
from klet.testing.builders import make_container, make_pod, with_resources


def pod(uid, cpu):
    return make_pod(with_resources(make_container("main"), requests={"cpu": cpu}), uid=uid, name=uid)


def reported(cpu):
    entry = {"name": "main", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    return convert(PodStatus, {"containerStatuses": [{**entry, "resources": {"requests": {"cpu": cpu}}}]})


class Node:
    """Allocations and statuses, which count how often an allocation is read to be summed up."""

    def __init__(self, *pods):
        self.pods = pods
        self.allocations = {each.metadata.uid: Counted(desired_allocation(each)) for each in pods}
        self.statuses = {each.metadata.uid: each.status for each in pods}
        self.loads = PodLoads(allocations=self, status_of=lambda each: self.statuses[each.metadata.uid])

    def of(self, each):
        return self.allocations[each.metadata.uid]

    def used(self):
        return self.loads.sum_up(self.pods)


class Counted:
    """An allocation that counts who sums it up."""

    def __init__(self, inner):
        self._inner = inner
        self.sums = 0

    def __getattr__(self, name):
        self.sums += name == "pod_requests"
        return getattr(self._inner, name)


def test_pods_are_summed_up():
    assert Node(pod("a", "100m"), pod("b", "200m")).used() == {"cpu": 300}
    assert Node().used() == {}


def test_a_pod_is_computed_once_while_nothing_changes():
    node = Node(pod("a", "100m"), pod("b", "200m"))
    for _ in range(5):
        assert node.used() == {"cpu": 300}
    assert [each.sums for each in node.allocations.values()] == [1, 1]


def test_another_allocation_is_computed_and_the_rest_is_kept():
    node = Node(pod("a", "100m"), pod("b", "200m"))
    node.used()
    node.allocations["a"] = Counted(desired_allocation(pod("a", "500m")))
    assert node.used() == {"cpu": 700}
    assert [each.sums for each in node.allocations.values()] == [1, 1]


def test_a_pod_that_is_gone_is_forgotten():
    node = Node(pod("a", "100m"), pod("b", "200m"))
    node.used()
    both, node.pods = node.pods, node.pods[:1]
    assert node.used() == {"cpu": 100}
    node.pods = both
    assert node.used() == {"cpu": 300}
    assert [each.sums for each in node.allocations.values()] == [1, 2]


def test_what_a_container_still_has_counts_once_it_is_reported():
    first, statuses = pod("a", "100m"), [PodStatus()]
    loads = PodLoads(allocations=Allocated(first), status_of=lambda _pod: statuses[-1])
    assert loads.sum_up([first]) == {"cpu": 100}
    statuses.append(reported("400m"))
    assert loads.sum_up([first]) == {"cpu": 400}


class Allocated:
    """The allocation of one pod."""

    def __init__(self, each):
        self._allocation = desired_allocation(each)

    def of(self, _pod):
        return self._allocation
