"""A change of the resources of a pod that runs, which klet does not carry out: it says so, and changes nothing."""

from klet.api.container import ResourceRequirements
from klet.api.quantity import Quantity
from klet.embedded.store import Key

SMALL = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}}
LARGE = {"requests": {"cpu": "300m", "memory": "96Mi"}, "limits": {"cpu": "400m", "memory": "256Mi"}}


def amounts(given: dict[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in given.items()}


def requirements(given: dict[str, dict[str, str]]) -> ResourceRequirements:
    return ResourceRequirements(requests=amounts(given["requests"]), limits=amounts(given["limits"]))


def resize(node, generation: int) -> None:
    """Change the pod as the subresource `resize` of an API server does."""
    key = Key("pods", "default", "p")
    pod = node.cluster.api.store.get(key)
    pod["metadata"]["generation"] = generation
    pod["spec"]["containers"][0]["resources"] = LARGE
    node.cluster.api.store.put(key, pod)


def taken_in(generation: int):
    return lambda pod: pod is not None and pod.status.observed_generation == generation


def given(node) -> list[tuple[int, int]]:
    """CPU shares and memory of each container that was made."""
    linux = [each.config.linux.resources for each in node.machine.runtime.containers()]
    return [(each.cpu_shares, each.memory_limit_in_bytes) for each in linux]


async def test_a_resize_is_reported_as_what_it_is_and_survives_a_restart_of_the_agent(node):
    async with node.run():
        await node.bind(container={"resources": SMALL})
        made = await node.until_running()
        generation = made.metadata.generation + 1
        resize(node, generation)
        pod = await node.until(taken_in(generation))
        assert pod.spec.containers[0].resources == requirements(LARGE)
        [status] = pod.status.container_statuses
        assert (status.allocated_resources, status.resources) == (amounts(SMALL["requests"]), requirements(SMALL))
        assert await node.reported("ResizePending")
    async with node.run():
        resize(node, generation + 1)
        pod = await node.until(taken_in(generation + 1))
        [status] = pod.status.container_statuses
        assert (status.allocated_resources, status.resources) == (amounts(SMALL["requests"]), requirements(SMALL))
        assert (status.restart_count, given(node)) == (0, [(102, 128 << 20)])


async def test_a_container_that_starts_again_has_what_the_pod_was_admitted_with(node):
    async with node.run():
        await node.bind(container={"resources": SMALL})
        made = await node.until_running()
        generation = made.metadata.generation + 1
        resize(node, generation)
        await node.until(taken_in(generation))
        [container] = node.machine.runtime.containers()
        node.machine.runtime.end_container(container.id, 1)
        await node.until(lambda pod: pod is not None and pod.status.container_statuses[0].restart_count == 1)
        assert set(given(node)) == {(102, 128 << 20)}
