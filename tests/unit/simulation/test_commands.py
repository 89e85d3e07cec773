"""What commands inside containers answer, attempt by attempt."""

from datetime import timedelta

from klet.model.pods import PodUID
from klet.model.probes import ProbeKind
from klet.runtime import labels
from klet.simulation.commands import Attempt, CommandResults, Commands
from klet.testing.fake_runtime.lives import ExecResult
from klet.testing.loop import EPOCH
from klet.wire import cri_v1_pb2 as pb

UID = PodUID("uid")


def config(attempt: int = 0) -> pb.ContainerConfig:
    metadata = pb.ContainerMetadata(name="main", attempt=attempt)
    return pb.ContainerConfig(metadata=metadata, labels={labels.POD_UID: UID})


def ask(commands: Commands, command: str, attempt: int = 0) -> int:
    return commands.answer(config(attempt), (command,)).exit_code


def test_readiness_is_flipped_for_every_instance():
    commands = Commands({})
    said = [ask(commands, "readiness")]
    commands.flip_readiness(UID, "main", now=EPOCH)
    said += [ask(commands, "readiness"), ask(commands, "readiness", attempt=1)]
    assert commands.unready(UID) == {"main": EPOCH}
    commands.flip_readiness(UID, "main", now=EPOCH)
    said.append(ask(commands, "readiness"))
    assert said == [0, 1, 1, 0]
    assert commands.unready(UID) == {}


def test_whoever_falls_sick_stays_so_and_the_next_is_well():
    commands = Commands({})
    commands.fail_liveness(Attempt(UID, "main", 0), now=EPOCH)
    assert not commands.is_reason_to_kill(Attempt(UID, "main", 0))
    assert [ask(commands, "liveness"), ask(commands, "liveness"), ask(commands, "liveness", attempt=1)] == [1, 1, 0]
    assert commands.not_live_since(Attempt(UID, "main", 0)) == EPOCH
    assert commands.is_reason_to_kill(Attempt(UID, "main", 0))
    assert not commands.is_reason_to_kill(Attempt(UID, "main", 1))


def test_startup_probes_fail_at_first():
    commands = Commands({(UID, "main"): CommandResults(startup_failures=(2, 0))})
    assert [ask(commands, "startup") for _ in range(3)] == [1, 1, 0]
    assert ask(commands, "startup", attempt=5) == 0
    assert commands.record(Attempt(UID, "main", 0)).probes[ProbeKind.STARTUP] == [False, False, True]


def test_hooks_follow_the_habits_of_the_attempt():
    slow = ExecResult(takes=timedelta(seconds=3))
    command_results = CommandResults(post_start=(ExecResult(exit_code=1), ExecResult()), pre_stop=(slow,))
    commands = Commands({(UID, "main"): command_results})
    assert [ask(commands, "post-start"), ask(commands, "post-start", attempt=1)] == [1, 0]
    assert commands.answer(config(), ("pre-stop",)) is slow
    assert commands.is_reason_to_kill(Attempt(UID, "main", 0))
    assert not commands.is_reason_to_kill(Attempt(UID, "main", 1))
