import pytest

from klet.cri.errors import Code, CriError, DeadlineExceeded
from klet.wire import cri_v1_pb2 as pb


async def test_output_and_exit_code_come_back(bench):
    container = await bench.run(await bench.pod())
    answer = await bench.exec(container, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (answer.stdout, answer.stderr, answer.exit_code) == (b"out\n", b"err\n", 7)


async def test_success_is_zero(bench):
    container = await bench.run(await bench.pod())
    answer = await bench.exec(container, "true")
    assert (answer.stdout, answer.stderr, answer.exit_code) == (b"", b"", 0)


async def test_a_killed_command_is_137(bench):
    container = await bench.run(await bench.pod())
    answer = await bench.exec(container, "sh", "-c", "echo x; kill -9 $$")
    assert (answer.stdout, answer.exit_code) == (b"x\n", 137)


async def test_a_command_that_ends_within_the_limit_is_fine(bench):
    container = await bench.run(await bench.pod())
    assert (await bench.exec(container, "sh", "-c", "sleep 0.3; exit 2", timeout=4)).exit_code == 2


async def test_a_command_that_takes_too_long_is_killed(bench):
    container = await bench.run(await bench.pod())
    with pytest.raises(DeadlineExceeded) as caught:
        await bench.exec(container, "sleep", "20", timeout=1)
    assert caught.value.__cause__.message == (
        "failed to exec in container: timeout 1s exceeded: context deadline exceeded"
    )
    assert (await bench.status(container)).state == pb.CONTAINER_RUNNING


async def test_a_command_dies_with_its_container(bench):
    # Long enough that the command has begun before it ends, also on a busy machine.
    container = await bench.run(await bench.pod(), "sleep", "5")
    assert (await bench.exec(container, "sleep", "20")).exit_code == 137
    assert (await bench.until_exited(container)).exit_code == 0


async def test_a_missing_command_is_an_error(bench):
    container = await bench.run(await bench.pod())
    with pytest.raises(CriError) as caught:
        await bench.exec(container, "nope")
    assert caught.value.code is Code.UNKNOWN
    assert caught.value.message.startswith('failed to exec in container: failed to start exec "')
    assert caught.value.message.endswith(
        '": OCI runtime exec failed: exec failed: unable to start container process:'
        ' exec: "nope": executable file not found in $PATH: unknown'
    )


async def test_an_empty_command_is_an_error(bench):
    container = await bench.run(await bench.pod())
    with pytest.raises(CriError, match="OCI runtime exec failed: exec failed: args must not be empty: unknown"):
        await bench.exec(container)


@pytest.mark.parametrize("state", ["CREATED", "EXITED"])
async def test_only_running_containers_take_commands(bench, state):
    pod = await bench.pod()
    container = await bench.create(pod) if state == "CREATED" else (await bench.run_to_end(pod, "true")).id
    with pytest.raises(CriError) as caught:
        await bench.exec(container, "true")
    message = f"failed to exec in container: container is in CONTAINER_{state} state"
    assert (caught.value.code, caught.value.message) == (Code.UNKNOWN, message)


async def test_streams_are_served_under_a_url(bench):
    pod = await bench.pod()
    container = await bench.run(pod)
    exec_ = await bench.client.exec(pb.ExecRequest(container_id=container, cmd=["true"], stdout=True))
    attach = await bench.client.attach(pb.AttachRequest(container_id=container, stdout=True))
    forward = await bench.client.port_forward(pb.PortForwardRequest(pod_sandbox_id=pod.id, port=[80]))
    assert [answer.url.split("/")[3] for answer in (exec_, attach, forward)] == ["exec", "attach", "portforward"]


async def test_a_commands_exit_is_not_the_containers(bench):
    container = await bench.run(await bench.pod())
    await bench.exec(container, "sh", "-c", "exit 4")
    topics = ["/containers/create", "/tasks/create", "/tasks/start", "/tasks/exec-added", "/tasks/exec-started"]
    exit_ = (await bench.events.until("/tasks/exit", container)).body
    assert bench.events.topics(container) == [*topics, "/tasks/exit"]
    assert exit_.id != exit_.container_id == container
    assert exit_.exit_status == 4


@pytest.mark.parametrize(
    ("call", "request_", "message"),
    [
        pytest.param(
            "exec",
            pb.ExecRequest(cmd=["true"]),
            "one of stdin, stdout, or stderr must be set",
            id="exec without any stream",
        ),
        pytest.param(
            "exec",
            pb.ExecRequest(cmd=["true"], tty=True, stderr=True),
            "tty and stderr cannot both be true",
            id="exec with a terminal and stderr",
        ),
        pytest.param(
            "attach",
            pb.AttachRequest(),
            "one of stdin, stdout, and stderr must be set",
            id="attach without any stream",
        ),
    ],
)
async def test_refused_streams(bench, call, request_, message):
    mine = type(request_)()
    mine.CopyFrom(request_)
    mine.container_id = await bench.run(await bench.pod())
    with pytest.raises(CriError) as caught:
        await getattr(bench.client, call)(mine)
    assert (caught.value.code, caught.value.message) == (Code.INVALID_ARGUMENT, message)


async def test_streams_need_something_that_runs(bench):
    pod = await bench.pod()
    container = await bench.create(pod)
    await bench.stop_pod(pod)
    for call, request in (
        (bench.client.exec, pb.ExecRequest(container_id=container, cmd=["true"], stdout=True)),
        (bench.client.attach, pb.AttachRequest(container_id=container, stdout=True)),
    ):
        with pytest.raises(CriError, match="container is in CONTAINER_CREATED state"):
            await call(request)
    with pytest.raises(CriError, match="sandbox container is not running"):
        await bench.client.port_forward(pb.PortForwardRequest(pod_sandbox_id=pod.id, port=[80]))
