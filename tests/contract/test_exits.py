import asyncio

import pytest

from klet.cri.errors import Code, CriError
from klet.wire import cri_v1_pb2 as pb


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        pytest.param("exit 0", 0, "Completed", id="success is Completed"),
        pytest.param("exit 1", 1, "Error", id="failure is Error"),
        pytest.param("exit 3", 3, "Error", id="the code is kept"),
        pytest.param("sleep 1; exit 42", 42, "Error", id="it may take a while"),
        pytest.param("exit 255", 255, "Error", id="255 is the largest code"),
    ],
)
async def test_exit_codes_and_reasons(bench, script, code, reason):
    status = await bench.run_to_end(await bench.pod(), "sh", "-c", script)
    assert (status.state, status.exit_code, status.reason) == (pb.CONTAINER_EXITED, code, reason)
    assert status.message == ""


async def test_the_times_of_a_life_are_in_order(bench):
    status = await bench.run_to_end(await bench.pod(), "sleep", "1")
    assert 0 < status.created_at < status.started_at < status.finished_at
    lived = (status.finished_at - status.started_at) / 1e9
    assert 0.9 < lived < 3


async def test_the_exit_event_has_code_and_time_of_the_status(bench):
    status = await bench.run_to_end(await bench.pod(), "sh", "-c", "sleep 1; exit 9")
    event = (await bench.events.until("/tasks/exit", status.id)).body
    assert event.exit_status == status.exit_code == 9
    assert event.exited_at.seconds * 1_000_000_000 + event.exited_at.nanos == status.finished_at
    assert event.id == event.container_id == status.id


async def test_a_container_out_of_memory_is_oom_killed(bench):
    def limit(config):
        config.linux.resources.memory_limit_in_bytes = 16 << 20

    script = "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"
    status = await bench.run_to_end(await bench.pod(), "sh", "-c", script, change=limit)
    assert status.exit_code == 137
    # containerd learns of the reason on another way than of the exit: either may come first.
    await bench.passing(bench.events.until("/tasks/oom", status.id))
    assert (await bench.until_reason(status.id, "OOMKilled")).exit_code == 137


async def test_a_stop_without_grace_kills(bench):
    container = await bench.run(await bench.pod(), "sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.1; done")
    await bench.stop(container, grace=0)
    status = await bench.status(container)
    assert (status.state, status.exit_code, status.reason) == (pb.CONTAINER_EXITED, 137, "Error")


async def test_a_stop_with_grace_lets_the_process_end_itself(bench):
    script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    container = await bench.run(await bench.pod(), "sh", "-c", script)
    await bench.until_log((await bench.status(container)).log_path, 1)
    await bench.stop(container, grace=30)
    status = await bench.status(container)
    assert (status.state, status.exit_code) == (pb.CONTAINER_EXITED, 5)
    assert status.finished_at - status.started_at < 20e9


async def test_a_process_that_ends_well_on_the_signal_is_completed(bench):
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    container = await bench.run(await bench.pod(), "sh", "-c", script)
    await bench.until_log((await bench.status(container)).log_path, 1)
    await bench.stop(container, grace=30)
    assert (await bench.status(container)).reason == "Completed"


async def test_a_process_that_ignores_the_signal_is_killed_after_the_grace_period(bench):
    container = await bench.run(await bench.pod(), "sleep", "1000")
    started = (await bench.status(container)).started_at
    await bench.stop(container, grace=1)
    status = await bench.status(container)
    assert (status.state, status.exit_code) == (pb.CONTAINER_EXITED, 137)
    assert 0.99e9 < status.finished_at - started < 3e9


async def test_a_process_in_a_shared_pid_namespace_dies_of_the_signal(bench):
    def share(config):
        config.linux.security_context.namespace_options.pid = pb.POD

    container = await bench.run(await bench.pod(share), "sleep", "1000", change=share)
    await bench.stop(container, grace=30)
    assert (await bench.status(container)).exit_code == 143


async def test_the_shorter_of_two_grace_periods_wins(bench):
    container = await bench.run(await bench.pod(), "sleep", "1000")

    async def both():
        async with asyncio.TaskGroup() as group:
            for grace in (30, 1):
                request = pb.StopContainerRequest(container_id=container, timeout=grace)
                group.create_task(bench.client.stop_container(request))

    await bench.passing(both())
    status = await bench.status(container)
    assert status.exit_code == 137
    assert status.finished_at - status.started_at < 10e9


async def test_a_container_that_ends_during_the_stop_keeps_its_own_code(bench):
    container = await bench.run(await bench.pod(), "sh", "-c", "trap '' TERM; sleep 1; exit 7")
    await bench.stop(container, grace=30)
    assert (await bench.status(container)).exit_code == 7


async def test_a_stop_whose_caller_gives_up_leaves_the_container_running(bench):
    container = await bench.run(await bench.pod(), "sleep", "1000")
    request = pb.StopContainerRequest(container_id=container, timeout=30)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bench.client.stop_container(request), 0.2)
    assert (await bench.status(container)).state == pb.CONTAINER_RUNNING
    await bench.stop(container, grace=1)
    assert (await bench.status(container)).exit_code == 137


async def test_a_termination_message_reaches_the_host(bench, tmp_path):
    file = tmp_path / "message"
    file.touch()

    def mount(config):
        config.mounts.add(container_path="/dev/termination-log", host_path=str(file))

    await bench.run_to_end(await bench.pod(), "sh", "-c", "echo why > /dev/termination-log; exit 1", change=mount)
    assert bench.log(str(file)) == "why\n"


@pytest.mark.parametrize("state", ["created", "exited"])
async def test_a_container_that_does_not_run_has_nothing_to_reopen(bench, state):
    pod = await bench.pod()
    container = await bench.create(pod) if state == "created" else (await bench.run_to_end(pod, "true")).id
    with pytest.raises(CriError) as caught:
        await bench.client.reopen_container_log(pb.ReopenContainerLogRequest(container_id=container))
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, "container is not running")
