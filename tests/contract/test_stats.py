import pytest

from klet.cri.errors import Code, CriError
from klet.wire import cri_v1_pb2 as pb


async def test_a_running_container_has_cpu_and_memory(bench):
    container = await bench.run(await bench.pod())
    request = pb.ContainerStatsRequest(container_id=container)
    stats = (await bench.client.container_stats(request)).stats
    assert stats.attributes.id == container
    assert stats.attributes.metadata.name == "main"
    assert dict(stats.attributes.labels) == {"container": "main"}
    assert stats.cpu.timestamp > 0
    assert stats.cpu.usage_core_nano_seconds.value > 0
    assert stats.memory.working_set_bytes.value > 0
    assert stats.memory.usage_bytes.value > 0
    assert stats.HasField("writable_layer")
    assert stats.writable_layer.fs_id.mountpoint


@pytest.mark.parametrize("state", ["created", "exited"])
async def test_a_container_that_does_not_run_has_no_stats(bench, state):
    pod = await bench.pod()
    container = await bench.create(pod) if state == "created" else (await bench.run_to_end(pod, "true")).id
    with pytest.raises(CriError) as caught:
        await bench.client.container_stats(pb.ContainerStatsRequest(container_id=container))
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, "unexpected metrics response: []")


async def test_stats_are_listed_by_sandbox_label_and_id(bench):
    first, second = await bench.pod(), await bench.pod()
    one = await bench.run(first, name="one")
    two = await bench.run(second, name="two")
    created = await bench.create(first, name="created")
    gone = (await bench.run_to_end(first, "true", name="gone")).id

    async def listed(**wanted):
        request = pb.ListContainerStatsRequest(filter=pb.ContainerStatsFilter(**wanted))
        return {stats.attributes.id for stats in (await bench.client.list_container_stats(request)).stats}

    assert await listed() == {one, two, created, gone}
    assert await listed(id=one) == {one}
    assert await listed(pod_sandbox_id=second.id) == {two}
    assert await listed(label_selector={"container": "two"}) == {two}


async def test_a_sandbox_sums_up_its_containers(bench):
    pod = await bench.pod()
    container = await bench.run(pod)
    stats = (await bench.client.pod_sandbox_stats(pb.PodSandboxStatsRequest(pod_sandbox_id=pod.id))).stats
    assert stats.attributes.id == pod.id
    assert stats.attributes.metadata == pod.config.metadata
    assert stats.linux.cpu.usage_core_nano_seconds.value > 0
    assert stats.linux.memory.working_set_bytes.value > 0
    assert [each.attributes.id for each in stats.linux.containers] == [container]


async def test_sandbox_stats_are_listed_by_id(bench):
    first, second = await bench.pod(), await bench.pod()

    async def listed(**wanted):
        request = pb.ListPodSandboxStatsRequest(filter=pb.PodSandboxStatsFilter(**wanted))
        return {stats.attributes.id for stats in (await bench.client.list_pod_sandbox_stats(request)).stats}

    assert await listed() == {first.id, second.id}
    assert await listed(id=first.id) == {first.id}
    assert await listed(label_selector=dict(second.config.labels)) == {second.id}


async def test_containers_that_do_not_run_are_listed_without_cpu_and_memory(bench):
    await bench.create(await bench.pod())
    (stats,) = (await bench.client.list_container_stats(pb.ListContainerStatsRequest())).stats
    assert stats.attributes.metadata.name == "main"
    assert not stats.HasField("cpu")
    assert not stats.HasField("memory")


async def test_a_sandbox_that_is_not_ready_has_no_stats_and_fails_the_whole_list(bench):
    pod, _ = await bench.pod(), await bench.pod()
    await bench.stop_pod(pod)
    why = f'failed to get pod sandbox stats since sandbox container "{pod.id}" is not in ready state'
    with pytest.raises(CriError) as caught:
        await bench.client.pod_sandbox_stats(pb.PodSandboxStatsRequest(pod_sandbox_id=pod.id))
    message = f"failed to decode pod sandbox metrics {pod.id}: {why}"
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, message)
    with pytest.raises(CriError) as caught:
        await bench.client.list_pod_sandbox_stats(pb.ListPodSandboxStatsRequest())
    message = f'failed to decode sandbox container metrics for sandbox "{pod.id}": {why}'
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, message)
