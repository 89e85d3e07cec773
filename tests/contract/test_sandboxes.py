import pytest

from klet.cri.errors import Code, CriError, CriNotFound
from klet.wire import cri_v1_pb2 as pb


async def test_a_new_sandbox_is_ready_and_has_an_address(bench):
    pod = await bench.pod()
    status = await bench.sandbox_status(pod)
    assert status.id == pod.id
    assert status.state == pb.SANDBOX_READY
    assert status.network.ip
    assert status.created_at > 0


async def test_a_sandbox_keeps_metadata_labels_and_annotations(bench):
    pod = await bench.pod()
    status = await bench.sandbox_status(pod)
    assert status.metadata == pod.config.metadata
    assert dict(status.labels) == dict(pod.config.labels)
    assert dict(status.annotations) == {"note": "kept"}


async def test_a_sandbox_keeps_its_namespace_options(bench):
    def change(config):
        config.linux.security_context.namespace_options.ipc = pb.NODE

    status = await bench.sandbox_status(await bench.pod(change))
    options = status.linux.namespaces.options
    assert (options.network, options.pid, options.ipc) == (pb.POD, pb.CONTAINER, pb.NODE)


async def test_a_sandbox_on_the_host_network_has_no_address(bench):
    def change(config):
        config.linux.security_context.namespace_options.network = pb.NODE

    status = await bench.sandbox_status(await bench.pod(change))
    assert status.HasField("network")
    assert status.network.ip == ""
    assert status.linux.namespaces.options.network == pb.NODE


async def test_two_sandboxes_have_different_ids_and_addresses(bench):
    first, second = await bench.pod(), await bench.pod()
    assert first.id != second.id
    assert (await bench.sandbox_status(first)).network.ip != (await bench.sandbox_status(second)).network.ip


async def test_the_name_of_a_sandbox_is_taken_until_it_is_removed(bench):
    pod = await bench.pod()
    metadata = pod.config.metadata
    name = f"{metadata.name}_{metadata.namespace}_{metadata.uid}_0"
    request = pb.RunPodSandboxRequest(config=pod.config)
    with pytest.raises(CriError) as caught:
        await bench.client.run_pod_sandbox(request)
    assert caught.value.code is Code.UNKNOWN
    assert caught.value.message == f'failed to reserve sandbox name "{name}": name "{name}" is reserved for "{pod.id}"'
    await bench.stop_pod(pod)
    with pytest.raises(CriError):
        await bench.client.run_pod_sandbox(request)
    await bench.remove_pod(pod)
    assert (await bench.client.run_pod_sandbox(request)).pod_sandbox_id != pod.id


async def test_another_attempt_is_another_sandbox(bench):
    pod = await bench.pod()
    await bench.stop_pod(pod)
    pod.config.metadata.attempt = 1
    answer = await bench.client.run_pod_sandbox(pb.RunPodSandboxRequest(config=pod.config))
    assert answer.pod_sandbox_id != pod.id


async def test_a_stopped_sandbox_is_not_ready_and_has_lost_its_address(bench):
    pod = await bench.pod()
    created_at = (await bench.sandbox_status(pod)).created_at
    await bench.stop_pod(pod)
    status = await bench.sandbox_status(pod)
    assert status.state == pb.SANDBOX_NOTREADY
    assert status.network.ip == ""
    assert status.created_at == created_at


async def test_stopping_a_sandbox_again_changes_nothing(bench):
    pod = await bench.pod()
    await bench.stop_pod(pod)
    await bench.stop_pod(pod)
    assert (await bench.sandbox_status(pod)).state == pb.SANDBOX_NOTREADY


async def test_stopping_a_sandbox_kills_its_containers(bench):
    pod = await bench.pod()
    running = await bench.run(pod)
    created = await bench.create(pod, name="created")
    await bench.stop_pod(pod)
    status = await bench.status(running)
    assert (status.state, status.exit_code, status.reason) == (pb.CONTAINER_EXITED, 137, "Error")
    assert (await bench.status(created)).state == pb.CONTAINER_CREATED


async def test_removing_a_ready_sandbox_stops_it_first_and_takes_its_containers_along(bench):
    pod = await bench.pod()
    container = await bench.run(pod)
    await bench.remove_pod(pod)
    with pytest.raises(CriNotFound):
        await bench.sandbox_status(pod)
    with pytest.raises(CriNotFound):
        await bench.status(container)


async def test_removing_a_sandbox_again_is_no_error(bench):
    pod = await bench.pod()
    await bench.remove_pod(pod)
    await bench.remove_pod(pod)


async def test_a_sandbox_whose_process_died_is_not_ready_but_keeps_its_address(bench):
    pod = await bench.pod()
    container = await bench.run(pod)
    before = (await bench.sandbox_status(pod)).network.ip
    await bench.kill_pause(pod)
    status = await bench.sandbox_status(pod)
    assert status.state == pb.SANDBOX_NOTREADY
    assert status.network.ip == before
    assert (await bench.status(container)).state == pb.CONTAINER_RUNNING


async def test_containers_in_the_sandboxs_pid_namespace_die_with_it(bench):
    def share(config):
        config.linux.security_context.namespace_options.pid = pb.POD

    pod = await bench.pod(share)
    container = await bench.run(pod, change=share)
    await bench.kill_pause(pod)
    status = await bench.until_exited(container)
    assert status.exit_code == 137


async def test_an_id_may_be_shortened(bench):
    pod = await bench.pod()
    request = pb.PodSandboxStatusRequest(pod_sandbox_id=pod.id[:12])
    assert (await bench.client.pod_sandbox_status(request)).status.id == pod.id


@pytest.mark.parametrize(
    ("call", "request_", "code", "message"),
    [
        pytest.param(
            "pod_sandbox_status",
            pb.PodSandboxStatusRequest(pod_sandbox_id="nope"),
            Code.NOT_FOUND,
            "an error occurred when try to find sandbox: not found",
            id="status of an unknown sandbox",
        ),
        pytest.param(
            "pod_sandbox_status",
            pb.PodSandboxStatusRequest(),
            Code.UNKNOWN,
            "an error occurred when try to find sandbox: Prefix can't be empty",
            id="status without an id",
        ),
        pytest.param(
            "stop_pod_sandbox",
            pb.StopPodSandboxRequest(pod_sandbox_id="nope"),
            Code.NOT_FOUND,
            'an error occurred when try to find sandbox "nope": not found',
            id="stop of an unknown sandbox",
        ),
        pytest.param(
            "run_pod_sandbox",
            pb.RunPodSandboxRequest(),
            Code.UNKNOWN,
            "sandbox config must include metadata",
            id="run without metadata",
        ),
        pytest.param(
            "run_pod_sandbox",
            pb.RunPodSandboxRequest(
                config=pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(name="a", namespace="b", uid="c")),
                runtime_handler="nope",
            ),
            Code.UNKNOWN,
            'failed to get sandbox runtime: no runtime for "nope" is configured',
            id="run with an unknown handler",
        ),
    ],
)
async def test_refused_sandbox_calls(bench, call, request_, code, message):
    with pytest.raises(CriError) as caught:
        await getattr(bench.client, call)(request_)
    assert (caught.value.code, caught.value.message) == (code, message)


async def test_a_refused_sandbox_leaves_its_name_free(bench):
    config = bench.sandbox_config()
    with pytest.raises(CriError):
        await bench.client.run_pod_sandbox(pb.RunPodSandboxRequest(config=config, runtime_handler="nope"))
    await bench.client.run_pod_sandbox(pb.RunPodSandboxRequest(config=config))


async def test_sandboxes_are_listed_by_state_label_and_id(bench):
    ready, stopped = await bench.pod(), await bench.pod()
    await bench.stop_pod(stopped)

    async def listed(**wanted):
        request = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(**wanted))
        return {item.id for item in (await bench.client.list_pod_sandbox(request)).items}

    assert await listed() == {ready.id, stopped.id}
    assert await listed(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY)) == {ready.id}
    assert await listed(state=pb.PodSandboxStateValue(state=pb.SANDBOX_NOTREADY)) == {stopped.id}
    assert await listed(label_selector=dict(ready.config.labels)) == {ready.id}
    assert await listed(label_selector={"app": "nobody"}) == set()
    assert await listed(id=ready.id) == {ready.id}
    assert await listed(id=ready.id[:10]) == {ready.id}
    assert await listed(id="nope") == set()


async def test_a_listed_sandbox_shows_the_same_as_its_status(bench):
    pod = await bench.pod(handler="runc")
    (item,) = (await bench.client.list_pod_sandbox(pb.ListPodSandboxRequest())).items
    status = await bench.sandbox_status(pod)
    for name in ("id", "metadata", "state", "created_at", "labels", "annotations", "runtime_handler"):
        assert getattr(item, name) == getattr(status, name), name
    assert item.runtime_handler == "runc"
