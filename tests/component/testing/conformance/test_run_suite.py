"""The runner with a script in the place of ginkgo."""

import asyncio
import os
import select
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.testing.conformance.report import ReportUnreadable
from klet.testing.conformance.runner import Suite, run_suite
from klet.testing.conformance.spec_sets import Selection

REPORT = """[{"SpecReports": [{"ContainerHierarchyTexts": ["Pods"], "LeafNodeType": "It", "LeafNodeText": "run",
"State": "failed", "StartTime": "2026-01-02T03:04:05Z", "EndTime": "2026-01-02T03:04:06Z"}]}]"""
GOOD = f"""
echo 'Will run 2 of 9 specs'
echo '•'
echo '• [FAILED] [1.000 seconds]'
echo 'Pods [It] run'
cat >report.json <<'EOF'
{REPORT}
EOF
exit 1
"""
ENDLESS = "sleep 1000 & echo $! >child; echo started; wait"


class Ended(KletError):
    """The agent is gone."""


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Runs the suite with a shell script as ginkgo; returns what was said too."""
    monkeypatch.setenv("KLET_UPSTREAM_BIN", str(tmp_path))

    async def run(script, said, check=lambda: None):
        for name in ("ginkgo", "e2e.test", "kubectl"):
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        suite = Suite(
            kubeconfig=tmp_path / "admin",
            directory=tmp_path,
            home=tmp_path,
            kubelet_root=tmp_path,
            procs=1,
            progress_every=timedelta(milliseconds=10),
        )
        return await run_suite(suite, Selection(), say=said.append, check=check, clock=SystemClock())

    return run


def has_ended(pid: int) -> bool:
    """Whether a process that was killed is gone; the kernel may take a moment."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        return bool(ended.poll(5000))
    finally:
        os.close(descriptor)


def child(directory) -> int:
    """The process that the script started; 0 until it has."""
    path = directory / "child"
    return int(path.read_text().strip() or 0) if path.exists() else 0


async def test_failures_are_said_at_once_and_the_report_is_read(start, tmp_path):
    said = []
    report = await start(GOOD, said)
    assert [(outcome.name, outcome.passed) for outcome in report.outcomes] == [("Pods run", False)]
    assert "FAILED Pods run" in said
    assert said[-1].startswith("2 of 2 done, 1 failed")
    assert "• [FAILED]" in (tmp_path / "ginkgo.log").read_text()


async def test_without_a_report_the_output_is_in_the_error(start):
    with pytest.raises(ReportUnreadable, match="ended with 3 and wrote no report; it said:\nno such flag"):
        await start("echo no such flag; exit 3", [])


async def test_an_agent_that_is_gone_ends_the_run_with_all_its_processes(start, tmp_path):
    def check():
        if child(tmp_path):
            raise Ended("the agent ended")

    with pytest.raises(Ended):
        await start(ENDLESS, [], check)
    assert has_ended(child(tmp_path))


async def test_a_cancelled_run_leaves_no_process(start, tmp_path):
    started = asyncio.Event()

    def check():
        if child(tmp_path):
            started.set()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(start(ENDLESS, [], check))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert has_ended(child(tmp_path))
