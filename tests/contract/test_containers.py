import re

import pytest

from klet.cri.errors import Code, CriError, CriNotFound
from klet.wire import cri_v1_pb2 as pb

BUSYBOX = "klet.local/busybox:1"


async def test_a_new_container_is_created_and_not_started(bench):
    container = await bench.create(await bench.pod())
    status = await bench.status(container)
    assert status.state == pb.CONTAINER_CREATED
    assert status.created_at > 0
    assert (status.started_at, status.finished_at, status.exit_code, status.reason) == (0, 0, 0, "")


async def test_a_container_keeps_metadata_labels_annotations_and_mounts(bench, tmp_path):
    (tmp_path / "here").mkdir()

    def change(config):
        config.mounts.add(container_path="/there", host_path=str(tmp_path / "here"), readonly=True)

    pod = await bench.pod()
    status = await bench.status(await bench.create(pod, name="kept", attempt=3, change=change))
    assert (status.metadata.name, status.metadata.attempt) == ("kept", 3)
    assert dict(status.labels) == {"container": "kept"}
    assert dict(status.annotations) == {"note": "kept"}
    assert [(mount.container_path, mount.readonly) for mount in status.mounts] == [("/there", True)]
    assert status.log_path == f"{pod.config.log_directory}/kept/3.log"


async def test_a_container_names_its_image(bench):
    status = await bench.status(await bench.create(await bench.pod()))
    image = (await bench.client.image_status(pb.ImageStatusRequest(image=pb.ImageSpec(image=BUSYBOX)))).image
    assert status.image.image == BUSYBOX
    assert status.image_ref == image.id


async def test_a_container_by_image_id_shows_the_images_name(bench):
    image = (await bench.client.image_status(pb.ImageStatusRequest(image=pb.ImageSpec(image=BUSYBOX)))).image
    container = await bench.create(await bench.pod(), image=image.id)
    assert (await bench.status(container)).image.image == BUSYBOX
    (item,) = (await bench.client.list_containers(pb.ListContainersRequest())).containers
    assert (item.image.image, item.image_ref) == (image.id, image.id)


async def test_a_started_container_runs(bench):
    container = await bench.run(await bench.pod())
    status = await bench.status(container)
    assert status.state == pb.CONTAINER_RUNNING
    assert 0 < status.created_at < status.started_at
    assert (status.finished_at, status.exit_code, status.reason, status.message) == (0, 0, "", "")


async def test_a_container_is_started_only_once(bench):
    container = await bench.run(await bench.pod())
    with pytest.raises(CriError) as caught:
        await bench.start(container)
    what = f'failed to set starting state for container "{container}": container is in'
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, f"{what} CONTAINER_RUNNING state")
    await bench.stop(container)
    with pytest.raises(CriError, match="container is in CONTAINER_EXITED state"):
        await bench.start(container)


async def test_a_command_that_is_missing_is_a_start_error(bench):
    container = await bench.create(await bench.pod(), "nope")
    with pytest.raises(CriError) as caught:
        await bench.start(container)
    assert caught.value.code is Code.UNKNOWN
    assert caught.value.message.startswith("failed to create containerd task: failed to create shim task: OCI runtime")
    assert caught.value.message.endswith('exec: "nope": executable file not found in $PATH: unknown')
    status = await bench.status(container)
    assert (status.state, status.exit_code, status.reason) == (pb.CONTAINER_EXITED, 128, "StartError")
    assert status.message == caught.value.message
    assert status.started_at == 0
    assert status.finished_at > status.created_at


async def test_a_container_in_a_stopped_sandbox_cannot_be_started(bench):
    pod = await bench.pod()
    container = await bench.create(pod)
    await bench.stop_pod(pod)
    with pytest.raises(CriError) as caught:
        await bench.start(container)
    message = f'sandbox container "{pod.id}" is not running'
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, message)
    status = await bench.status(container)
    assert (status.state, status.exit_code, status.reason) == (pb.CONTAINER_EXITED, 128, "StartError")
    assert status.message == message


async def test_a_container_cannot_be_created_in_a_stopped_sandbox(bench):
    pod = await bench.pod()
    await bench.stop_pod(pod)
    with pytest.raises(CriNotFound) as caught:
        await bench.create(pod)
    assert caught.value.message == (
        f"failed to get sandbox container task: no running task found: task {pod.id} not found: not found"
    )


async def test_the_name_of_a_container_is_taken_until_it_is_removed(bench):
    pod = await bench.pod()
    container = await bench.create(pod)
    metadata = pod.config.metadata
    name = f"main_{metadata.name}_{metadata.namespace}_{metadata.uid}_0"
    with pytest.raises(CriError) as caught:
        await bench.create(pod)
    assert (caught.value.code, caught.value.message) == (
        Code.UNKNOWN,
        f'failed to reserve container name "{name}": name "{name}" is reserved for "{container}"',
    )
    await bench.remove(container)
    assert await bench.create(pod) != container


async def test_another_attempt_is_another_container(bench):
    pod = await bench.pod()
    first, second = await bench.create(pod), await bench.create(pod, attempt=1)
    assert first != second
    assert (await bench.status(second)).metadata.attempt == 1


async def test_the_name_is_taken_across_the_sandboxes_of_a_pod(bench):
    pod = await bench.pod()
    await bench.create(pod)
    await bench.stop_pod(pod)
    pod.config.metadata.attempt = 1
    pod.id = (await bench.client.run_pod_sandbox(pb.RunPodSandboxRequest(config=pod.config))).pod_sandbox_id
    with pytest.raises(CriError, match="is reserved for"):
        await bench.create(pod)


async def test_a_container_that_could_not_be_created_leaves_its_name_free(bench):
    pod = await bench.pod()
    with pytest.raises(CriNotFound) as caught:
        await bench.create(pod, image="klet.local/nope:1")
    assert caught.value.message == 'failed to resolve image "klet.local/nope:1": not found'
    await bench.create(pod)


async def test_stopping_a_created_container_changes_nothing(bench):
    container = await bench.create(await bench.pod())
    await bench.stop(container, grace=1)
    assert (await bench.status(container)).state == pb.CONTAINER_CREATED
    await bench.start(container)


async def test_stopping_an_exited_container_changes_nothing(bench):
    status = await bench.run_to_end(await bench.pod(), "sh", "-c", "exit 3")
    await bench.stop(status.id, grace=1)
    assert await bench.status(status.id) == status


async def test_removing_a_running_container_kills_it(bench):
    container = await bench.run(await bench.pod())
    await bench.remove(container)
    with pytest.raises(CriNotFound):
        await bench.status(container)
    assert (await bench.events.until("/tasks/exit", container)).body.exit_status == 137


async def test_removing_a_container_again_is_no_error(bench):
    container = await bench.create(await bench.pod())
    await bench.remove(container)
    await bench.remove(container)


@pytest.mark.parametrize(
    ("call", "request_", "message"),
    [
        pytest.param(
            "container_status",
            pb.ContainerStatusRequest(container_id="nope"),
            'an error occurred when try to find container "nope": not found',
            id="status",
        ),
        pytest.param(
            "start_container",
            pb.StartContainerRequest(container_id="nope"),
            'an error occurred when try to find container "nope": not found',
            id="start",
        ),
        pytest.param(
            "stop_container",
            pb.StopContainerRequest(container_id="nope"),
            'an error occurred when try to find container "nope": not found',
            id="stop",
        ),
        pytest.param(
            "update_container_resources",
            pb.UpdateContainerResourcesRequest(container_id="nope", linux=pb.LinuxContainerResources(cpu_shares=5)),
            "failed to find container: not found",
            id="update",
        ),
        pytest.param(
            "reopen_container_log",
            pb.ReopenContainerLogRequest(container_id="nope"),
            'an error occurred when try to find container "nope": not found',
            id="reopen the log",
        ),
        pytest.param(
            "exec_sync",
            pb.ExecSyncRequest(container_id="nope", cmd=["true"]),
            'failed to exec in container: failed to find container "nope" in store: not found',
            id="exec",
        ),
        pytest.param(
            "exec",
            pb.ExecRequest(container_id="nope", cmd=["true"], stdout=True),
            'failed to find container "nope" in store: not found',
            id="exec stream",
        ),
        pytest.param(
            "attach",
            pb.AttachRequest(container_id="nope", stdout=True),
            "failed to find container in store: not found",
            id="attach stream",
        ),
        pytest.param(
            "pod_sandbox_stats",
            pb.PodSandboxStatsRequest(pod_sandbox_id="nope"),
            "an error occurred when trying to find sandbox nope: not found",
            id="sandbox stats",
        ),
        pytest.param(
            "port_forward",
            pb.PortForwardRequest(pod_sandbox_id="nope", port=[80]),
            'failed to find sandbox "nope": not found',
            id="port forwarding",
        ),
        pytest.param(
            "container_stats",
            pb.ContainerStatsRequest(container_id="nope"),
            "failed to find container: not found",
            id="stats",
        ),
        pytest.param(
            "create_container",
            pb.CreateContainerRequest(pod_sandbox_id="nope"),
            'failed to find sandbox id "nope": not found',
            id="create in an unknown sandbox",
        ),
    ],
)
async def test_unknown_ids_are_not_found(bench, call, request_, message):
    with pytest.raises(CriNotFound) as caught:
        await getattr(bench.client, call)(request_)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("call", "request_", "message"),
    [
        ("container_status", pb.ContainerStatusRequest(), 'an error occurred when try to find container ""'),
        ("start_container", pb.StartContainerRequest(), 'an error occurred when try to find container ""'),
        ("stop_container", pb.StopContainerRequest(), 'an error occurred when try to find container ""'),
        ("remove_container", pb.RemoveContainerRequest(), 'an error occurred when try to find container ""'),
        ("remove_pod_sandbox", pb.RemovePodSandboxRequest(), 'an error occurred when try to find sandbox ""'),
        ("stop_pod_sandbox", pb.StopPodSandboxRequest(), 'an error occurred when try to find sandbox ""'),
        ("create_container", pb.CreateContainerRequest(), 'failed to find sandbox id ""'),
        ("container_stats", pb.ContainerStatsRequest(), "failed to find container"),
        ("pod_sandbox_stats", pb.PodSandboxStatsRequest(), "an error occurred when trying to find sandbox "),
        ("port_forward", pb.PortForwardRequest(), 'failed to find sandbox ""'),
    ],
)
async def test_empty_ids_are_refused(bench, call, request_, message):
    with pytest.raises(CriError) as caught:
        await getattr(bench.client, call)(request_)
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, f"{message}: Prefix can't be empty")


async def test_a_container_needs_metadata(bench):
    pod = await bench.pod()
    with pytest.raises(CriError) as caught:
        await bench.create(pod, change=lambda config: config.ClearField("metadata"))
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, "container config must include metadata")


async def test_an_id_may_be_shortened(bench):
    container = await bench.run(await bench.pod())
    assert (await bench.status(container[:12])).id == container
    await bench.stop(container[:12])
    await bench.remove(container[:12])
    with pytest.raises(CriNotFound):
        await bench.status(container)


async def test_containers_are_listed_by_state_sandbox_label_and_id(bench):
    first, second = await bench.pod(), await bench.pod()
    running = await bench.run(first, name="running")
    created = await bench.create(first, name="created")
    other = await bench.run_to_end(second, "true", name="other")

    async def listed(**wanted):
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(**wanted))
        return {container.id for container in (await bench.client.list_containers(request)).containers}

    def state(value):
        return pb.ContainerStateValue(state=value)

    assert await listed() == {running, created, other.id}
    assert await listed(state=state(pb.CONTAINER_RUNNING)) == {running}
    assert await listed(state=state(pb.CONTAINER_CREATED)) == {created}
    assert await listed(state=state(pb.CONTAINER_EXITED)) == {other.id}
    assert await listed(pod_sandbox_id=first.id) == {running, created}
    assert await listed(pod_sandbox_id=first.id, state=state(pb.CONTAINER_EXITED)) == set()
    assert await listed(label_selector={"container": "other"}) == {other.id}
    assert await listed(id=running[:10]) == {running}
    assert await listed(id="nope") == set()


async def test_a_listed_container_shows_the_same_as_its_status(bench):
    pod = await bench.pod()
    container = await bench.run(pod)
    (item,) = (await bench.client.list_containers(pb.ListContainersRequest())).containers
    status = await bench.status(container)
    assert item.pod_sandbox_id == pod.id
    for name in ("id", "metadata", "state", "created_at", "labels", "annotations", "image_ref"):
        assert getattr(item, name) == getattr(status, name), name


async def test_resources_can_be_updated_and_are_reported(bench):
    container = await bench.run(await bench.pod())
    update = pb.LinuxContainerResources(cpu_shares=512, memory_limit_in_bytes=64 << 20)
    request = pb.UpdateContainerResourcesRequest(container_id=container, linux=update)
    await bench.client.update_container_resources(request)
    resources = (await bench.status(container)).resources.linux
    assert (resources.cpu_shares, resources.memory_limit_in_bytes) == (512, 64 << 20)


async def test_verbose_statuses_carry_the_pid(bench):
    pod = await bench.pod()
    container = await bench.run(pod)
    answer = await bench.client.container_status(pb.ContainerStatusRequest(container_id=container, verbose=True))
    assert re.search(r'"pid":[1-9]', answer.info["info"])
    assert pod.id in answer.info["info"]
