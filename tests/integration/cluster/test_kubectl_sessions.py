"""kubectl's sessions through a real API server: terminals and their size, attach, copies, debugging, many at once."""

import asyncio
import hashlib
import random
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from klet.host.images import BUSYBOX_IMAGE
from klet.testing.control_plane.programs import KUBECTL, find_program
from klet.testing.terminal import run_on_terminal

SESSIONS = 50
SESSION_INPUT = 64 * 1024
COPIED = 100 * 1024 * 1024
PATIENCE = 250
SHOW_SIZE = 'while true; do n=$(stty size); [ "$n" = "$o" ] || echo "size $n."; o=$n; sleep 0.05; done'
TALK = 'echo started; while read line; do echo "heard $line"; done; echo "no more"; sleep 1000'


@pytest.fixture
def command(api):
    """The command line of a kubectl: `command("exec", "web", "--", "true")`."""

    # Written once: kubectl may be reading it while the next one is started.
    program, kubeconfig = str(find_program(KUBECTL)), api.plane.admin

    def build(*arguments):
        return (program, f"--kubeconfig={kubeconfig}", *arguments)

    return build


@pytest.fixture
def session(command):
    """A kubectl that runs meanwhile: `async with session("attach", "-i", "web") as process`."""

    @asynccontextmanager
    async def run(*arguments):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command(*arguments), stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            async with asyncio.timeout(PATIENCE):
                yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    return run


@pytest.fixture
async def pod(ready, api, node, manifest):
    """A pod with room for copies, one container that listens on its stdin, one with a terminal."""
    if api.pods.get("sessions", "default") is None:
        wanted = manifest("sessions", main="trap 'exit 0' TERM; sleep 100000 & wait $!", talker=TALK, screen=SHOW_SIZE)
        _, talker, screen = wanted["spec"]["containers"]
        talker["stdin"] = True
        screen |= {"stdin": True, "tty": True}
        await api.create(wanted, node=node.name)
    return await api.until_pod(
        "sessions",
        lambda pod: (
            len(pod.status.container_statuses) == 3 and all(each.ready for each in pod.status.container_statuses)
        ),
        what="all containers run",
    )


async def test_a_terminal_has_the_size_of_the_window_and_follows_it(pod, command):
    arguments = ("exec", "-it", "sessions", "-c", "main", "--", "sh", "-c", SHOW_SIZE)
    async with asyncio.timeout(PATIENCE), run_on_terminal(command(*arguments), rows=24, columns=80) as terminal:
        await terminal.until(r"size 24 80\.")
        terminal.resize(rows=50, columns=132)
        await terminal.until(r"size 50 132\.")
        terminal.resize(rows=10, columns=20)
        await terminal.until(r"size 10 20\.")
        terminal.type("\x03")
        assert await terminal.ended() == 130


async def test_a_shell_on_a_terminal(pod, command):
    async with asyncio.timeout(PATIENCE), run_on_terminal(command("exec", "-it", "sessions", "--", "sh")) as terminal:
        await terminal.until("# ")
        terminal.type("tty; echo $((40 + 2))\r")
        await terminal.until(r"/dev/pts/\d+\r\n42\r\n")
        terminal.type("exit 7\r")
        assert await terminal.ended() == 7


async def test_attach_hands_over_input_and_output(pod, session):
    async with session("attach", "-i", "sessions", "-c", "talker") as process:
        process.stdin.write(b"one\n")
        await process.stdin.drain()
        assert await process.stdout.readline() == b"heard one\n"
        process.stdin.write(b"two\n")
        await process.stdin.drain()
        assert await process.stdout.readline() == b"heard two\n"
    # The container keeps its stdin open for the next one, since it has no stdinOnce.
    async with session("attach", "-i", "sessions", "-c", "talker") as process:
        process.stdin.write(b"three\n")
        await process.stdin.drain()
        assert await process.stdout.readline() == b"heard three\n"


async def test_attach_to_a_terminal_resizes_it(pod, command):
    arguments = ("attach", "-it", "sessions", "-c", "screen")
    async with asyncio.timeout(PATIENCE), run_on_terminal(command(*arguments), rows=31, columns=97) as terminal:
        await terminal.until(r"size 31 97\.")
        terminal.resize(rows=33, columns=99)
        await terminal.until(r"size 33 99\.")


async def test_debug_adds_a_container_that_sees_the_processes_of_its_target(pod, api, command):
    seen = "ps -o args | grep -c '[s]leep 100000'"
    arguments = ("debug", "sessions", "--profile=general", f"--image={BUSYBOX_IMAGE}", "--target=main")
    await api.kubectl(*arguments, "--container=seeing", "--", "sh", "-c", seen)

    def has_ended(pod):
        return any(each.name == "seeing" and each.state.terminated for each in pod.status.ephemeral_container_statuses)

    await api.until_pod("sessions", has_ended, what="the ephemeral container has ended")
    assert int(await api.kubectl("logs", "sessions", "-c", "seeing")) >= 1
    interactive = (*arguments, "-it", "--container=typing", "--", "sh")
    async with asyncio.timeout(PATIENCE), run_on_terminal(command(*interactive)) as terminal:
        await terminal.until("# ")
        terminal.type("echo $((50 - 8))\r")
        await terminal.until(r"\n42\r\n")
        terminal.type("exit\r")
        await terminal.ended()


async def test_many_sessions_at_once_keep_their_own_input(pod, session):
    """All are open at the same time: none gets the rest of its input before each has echoed its first line."""
    inputs = [random.Random(number).randbytes(SESSION_INPUT // 2).hex() for number in range(SESSIONS)]

    async def begin(process, number):
        process.stdin.write(f"{number}\n".encode())
        first = await process.stdout.readline()
        assert first == f"{number}\n".encode(), (await process.stderr.read()).decode()

    async def finish(process, number):
        output, errors = await process.communicate(inputs[number].encode())
        assert (process.returncode, errors) == (0, b"")
        return hashlib.sha256(output).hexdigest()

    async with AsyncExitStack() as stack:
        arguments = ("exec", "-i", "sessions", "-c", "main", "--", "cat")
        processes = [await stack.enter_async_context(session(*arguments)) for _ in range(SESSIONS)]
        async with asyncio.TaskGroup() as group:
            for number, process in enumerate(processes):
                group.create_task(begin(process, number))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(finish(process, number)) for number, process in enumerate(processes)]
    assert [task.result() for task in tasks] == [hashlib.sha256(each.encode()).hexdigest() for each in inputs]


async def test_a_large_file_is_copied_both_ways(pod, api, session, tmp_path):
    data = random.Random(1).randbytes(COPIED)
    expected = hashlib.sha256(data).hexdigest()
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(data)

    async def copy(*arguments):
        async with session("cp", "--retries=0", "-c", "main", *arguments) as process:
            _, errors = await process.communicate()
            assert process.returncode == 0, errors.decode()

    await copy(str(there), "sessions:/copy")
    shown = await api.kubectl("exec", "sessions", "-c", "main", "--", "sha256sum", "/copy")
    assert shown.split()[0] == expected
    await copy("sessions:/copy", str(back))
    assert hashlib.sha256(back.read_bytes()).hexdigest() == expected
    await api.kubectl("exec", "sessions", "-c", "main", "--", "rm", "/copy")
