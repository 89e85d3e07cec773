"""Output of commands in containers: endless, or made to fool its readers. Probes and hooks bring it to the node."""

import asyncio
import json
import sys
from datetime import timedelta

from klet.testing.fake_runtime import ExecResult, Script
from klet.testing.fake_runtime.lives import always, by_name, runs_for

FLOOD = 12 << 20
LONGEST = 12 * 1024
ESCAPE = b"\x1b]0;taken over\x07\x1b[2J\x9b31m\r\nI1116 00:00:00.000000 1 forged.go:1] forged\x00\x08\x08"
PROBE = {"exec": {"command": ["check"]}, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1}


def said(output):
    def answer(_config, _command):
        return ExecResult(stdout=output, stderr=output, exit_code=1)

    last_words = runs_for(timedelta(), exit_code=1).leaving(output[:4096].decode(errors="replace"))
    return Script(execs=answer, lives=by_name({"short": always(last_words)}))


async def run_klet(*arguments):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "klet", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output


async def provoke(target, pod):
    """A probe, a hook and a container's termination message, each with output; returns all that was recorded."""
    target.node.write("ended", pod("ended", short={}))
    await target.agent.recorded("ended", "BackOff")
    await target.start(pod("probed", main={"readinessProbe": PROBE}))
    await target.agent.recorded("probed", "Unhealthy")
    hook = {"lifecycle": {"postStart": {"exec": {"command": ["begin"]}}, "preStop": {"exec": {"command": ["end"]}}}}
    target.node.write("hooked", pod("hooked", main=hook))
    await target.agent.recorded("hooked", "FailedPostStartHook")
    return [json.loads(line) for line in (await target.agent.text("/klet/v1/journal")).splitlines()]


async def test_a_flood_is_cut_before_it_is_kept(attack, pod):
    async with attack(script=said(b"x" * (FLOOD // 2))) as target:
        await target.start(pod("quiet"))
        before = target.memory()
        records = await provoke(target, pod)
        assert max(len(record["message"].encode()) for record in records) <= LONGEST
        assert len(await target.agent.text("/pods")) < 100_000
        assert max(map(len, target.agent.log.splitlines())) < 2 * LONGEST
        # What is in flight is as large as the runtime's messages may be; nothing of it stays.
        assert target.memory() - before < 6 * FLOOD


async def test_output_does_not_control_the_terminal_of_the_owner(attack, pod):
    async with attack(script=said(ESCAPE)) as target:
        await provoke(target, pod)
        state = f"--state-dir={target.node.root}"
        for command in (("explain", "probed"), ("explain", "--all", "ended"), ("explain", "hooked"), ("ps",)):
            shown = await run_klet(*command, state)
            assert (b"taken over" in shown) == (command[-1] in {"probed", "ended"}), shown
            for byte in (b"\x1b", b"\x07", b"\x00", b"\x08", b"\r", b"\xc2\x9b"):
                assert byte not in shown, command


async def test_output_forges_no_line_of_the_log(attack, pod):
    async with attack(script=said(ESCAPE)) as target:
        await provoke(target, pod)
        assert not any(line.startswith("I1116 00:00:00.000000 1 forged") for line in target.agent.log.splitlines())
        assert "\x1b" not in target.agent.log
