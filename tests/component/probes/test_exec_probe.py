"""Exec probes through the CRI client and the fake runtime, in virtual time."""

from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.container import EnvVar, EnvVarSource
from klet.api.handlers import ExecAction, Probe
from klet.cri.errors import Code
from klet.host.http_client import HttpClient
from klet.host.images import BUSYBOX_IMAGE
from klet.model.runtime import ContainerId
from klet.probes.handler import MAX_OUTPUT, ProbeAnswer, ProbeOutcome, ProbeTarget
from klet.probes.prober import Prober
from klet.testing.builders import make_container, make_pod
from klet.testing.cri_configs import build_container_config, build_sandbox_config
from klet.testing.fake_runtime import Fail, FakeImage, FakeRuntime, Fault, Script
from klet.testing.fake_runtime.shell import shell_exec
from klet.testing.in_process import run_in_process
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as pb

SECOND = timedelta(seconds=1)


@asynccontextmanager
async def running_container(runtime):
    """A client of the runtime, and the id of a container that runs in it."""
    async with run_in_process(runtime, clock=LoopClock(epoch=EPOCH)) as client:
        config = build_sandbox_config(name="pod", log_directory=Path("/logs"), cgroup_parent="/pods")
        sandbox = await client.run_pod_sandbox(pb.RunPodSandboxRequest(config=config))
        created = await client.create_container(
            pb.CreateContainerRequest(
                pod_sandbox_id=sandbox.pod_sandbox_id,
                config=build_container_config(name="main", command=["sleep", "1000"]),
                sandbox_config=config,
            )
        )
        await client.start_container(pb.StartContainerRequest(container_id=created.container_id))
        yield client, ContainerId(created.container_id)


def probe(command, *, env=(), before=None, timeout=SECOND):
    """The outcome of a command, and the commands that the runtime saw."""
    runtime = FakeRuntime(start=EPOCH, script=Script(execs=shell_exec), images=(FakeImage(BUSYBOX_IMAGE),))

    async def main():
        async with running_container(runtime) as (client, container):
            if before is not None:
                before(runtime)
            target = ProbeTarget(
                pod=make_pod("main"),
                container=replace(make_container("main"), env=env),
                id=container,
                probe=Probe(exec=ExecAction(command=tuple(command))),
                pod_ip="",
                timeout=timeout,
            )
            return await Prober(runtime=client, http=HttpClient()).prepare(target)()

    outcome = run_virtual(main())
    return outcome, [list(call.request.cmd) for call in runtime.calls if call.rpc == "ExecSync"]


@pytest.mark.parametrize(
    ("script", "want"),
    [
        pytest.param("echo fine", ProbeOutcome(ProbeAnswer.SUCCESS, "fine\n"), id="exit code 0"),
        pytest.param(
            "echo out; echo err >&2; exit 3", ProbeOutcome(ProbeAnswer.FAILURE, "out\nerr\n"), id="another exit code"
        ),
        pytest.param(
            "sleep 5",
            ProbeOutcome(ProbeAnswer.FAILURE, 'command timed out: "sh -c sleep 5" timed out after 1s'),
            id="too slow",
        ),
        pytest.param(
            'head -c 20000 /dev/zero | tr "\\0" x',
            ProbeOutcome(ProbeAnswer.SUCCESS, "x" * MAX_OUTPUT),
            id="output is cut",
        ),
    ],
)
def test_outcomes(script, want):
    assert probe(["sh", "-c", script])[0] == want


def test_a_command_that_does_not_exist_is_an_error_and_tried_three_times():
    outcome, commands = probe(["nothing"])
    assert outcome.answer is ProbeAnswer.UNKNOWN
    assert outcome.error.startswith("rpc error: code = Unknown desc = failed to exec in container: ")
    assert commands == [["nothing"]] * 3


def test_an_error_that_goes_away():
    def break_once(runtime):
        runtime.faults.add(Fault("ExecSync", Fail(Code.UNAVAILABLE, "restarting")))

    outcome, commands = probe(["echo", "fine"], before=break_once)
    assert (outcome, len(commands)) == (ProbeOutcome(ProbeAnswer.SUCCESS, "fine\n"), 2)


def test_only_literal_values_are_expanded():
    env = (
        EnvVar(name="A", value="script"),
        EnvVar(name="C", value_from=EnvVarSource()),
        EnvVar(name="D", value="$(A)"),
    )
    _, commands = probe(["echo", "some", "$(A)", "$(B)", "$(C)", "$(D)", "$$(A)"], env=env)
    assert commands == [["echo", "some", "script", "$(B)", "", "$(A)", "$(A)"]]


def test_a_command_that_gets_too_long_is_not_run():
    outcome, commands = probe(["echo", "$(A)" * 10_000], env=(EnvVar(name="A", value="x" * 10_000),))
    assert outcome == ProbeOutcome(ProbeAnswer.UNKNOWN, error="too long after its references were replaced")
    assert commands == []
