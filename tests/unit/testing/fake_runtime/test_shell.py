from datetime import timedelta

import pytest

from klet.testing.fake_runtime.lives import FileWrite, OnTerm, OutputLine
from klet.testing.fake_runtime.shell import UnknownCommand, shell_exec, shell_life
from klet.wire import cri_v1_pb2 as pb


def life(*command, pid=pb.CONTAINER):
    config = pb.ContainerConfig(command=command)
    config.linux.security_context.namespace_options.pid = pid
    return shell_life(config)


def seconds(number):
    return timedelta(seconds=number)


@pytest.mark.parametrize(
    ("command", "lasts", "code"),
    [
        (["true"], 0, 0),
        (["false"], 0, 1),
        (["sleep", "2.5"], 2.5, 0),
        (["sh", "-c", "exit 3"], 0, 3),
        (["sh", "-c", "sleep 1; exit 42"], 1, 42),
        (["sh", "-c", "exit 1; sleep 5"], 0, 1),
        (["sh", "-c", "sleep 1; false"], 1, 1),
    ],
)
def test_how_long_and_how_it_ends(command, lasts, code):
    found = life(*command)
    assert (found.lasts, found.exit_code) == (seconds(lasts), code)


def test_output_comes_when_it_is_said():
    found = life("sh", "-c", "echo a b; sleep 1; echo 'c; d' >&2; printf e; echo f")
    assert found.logs == (
        OutputLine(seconds(0), "a b"),
        OutputLine(seconds(1), "c; d", "stderr"),
        OutputLine(seconds(1), "ef"),
    )


def test_a_loop_goes_on_and_on():
    found = life("sh", "-c", "echo start; while :; do echo tick; sleep 60; done")
    assert found.lasts is None
    assert [line.text for line in found.logs] == ["start", *["tick"] * 10]


def test_a_growing_variable_is_oom_killed():
    found = life("sh", "-c", "x=aa; while :; do x=$x$x; done")
    assert (found.oom_killed, found.exit_code) == (True, 137)


@pytest.mark.parametrize(
    ("script", "pid", "reaction"),
    [
        pytest.param("sleep 1000", pb.CONTAINER, None, id="the first process ignores the signal"),
        pytest.param("sleep 1000", pb.POD, OnTerm(143), id="another process dies of it"),
        pytest.param("trap 'exit 5' TERM; sleep 1000", pb.CONTAINER, OnTerm(5), id="a handler ends it"),
        pytest.param("trap '' TERM; sleep 1000", pb.POD, None, id="it may be ignored"),
    ],
)
def test_the_stop_signal(script, pid, reaction):
    assert life("sh", "-c", script, pid=pid).on_term == reaction


def test_files_and_long_lines():
    found = life("sh", "-c", 'echo why > /dev/termination-log; head -c 5 /dev/zero | tr "\\0" x; echo')
    assert found.files == (FileWrite(seconds(0), "/dev/termination-log", b"why\n"),)
    assert found.logs == (OutputLine(seconds(0), "xxxxx"),)


def test_a_program_that_is_missing_fails_to_start():
    assert 'exec: "nope": executable file not found' in life("nope").start_failure.message


def test_what_it_does_not_know_it_refuses():
    with pytest.raises(UnknownCommand):
        life("sh", "-c", "fork_bomb")
    with pytest.raises(UnknownCommand):
        life("printf", "a", "b")


def test_commands_inside():
    result = shell_exec(pb.ContainerConfig(), ["sh", "-c", "echo a; echo b >&2; sleep 2; exit 4"])
    assert (result.stdout, result.stderr, result.exit_code, result.takes) == (b"a\n", b"b\n", 4, seconds(2))
    assert "executable file not found" in shell_exec(pb.ContainerConfig(), ["nope"]).failure.message
