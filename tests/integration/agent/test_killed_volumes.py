"""The agent of a static pod is killed at every change that it makes for the pod's volumes; nothing is left or lost.

`klet.testing.killed_agent` kills it before a change of a given number. A few numbers are part of every run of the
tests; `KLET_VOLUME_KILLS=100` takes each from 1 to 100. Claims and CSI drivers: tests/integration/cluster.
"""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.host.mounts import list_mounts

ALL = int(os.environ.get("KLET_VOLUME_KILLS", "0"))
NUMBERS = range(1, ALL + 1) if ALL else (7, 18, 29)
PATIENCE = 100
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
WRITE = f"cat /down/name > /host/file; echo part > /part/file; {FOREVER}"


class KilledNode:
    """The node, and all that its agents could leave behind."""

    def __init__(self, node, directory: Path) -> None:
        self.node = node
        self.home = directory / "srv"

    def pod(self, manifest) -> dict:
        name = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
        volumes = [
            {"name": "scratch", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "down", "downwardAPI": {"items": [name]}},
            {"name": "host", "hostPath": {"path": str(self.home), "type": "DirectoryOrCreate"}},
        ]
        made = manifest("web", main=WRITE, spec={"volumes": volumes, "terminationGracePeriodSeconds": 1})
        mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
        mounts += [{"name": each, "mountPath": path, "subPath": "a/part"} for each, path in PARTS.items()]
        made["spec"]["containers"][0]["volumeMounts"] = mounts
        return made

    def is_up(self) -> bool:
        file = self.home / "file"
        return file.exists() and file.read_text() == "web-node"

    def leftovers(self) -> list[str]:
        pods = self.node.root / "pods"
        left = [str(path) for path in pods.glob("*")]
        return left + [each.mount_point for each in list_mounts() if each.mount_point.startswith(f"{pods}/")]

    async def until(self, holds, what) -> None:
        clock = SystemClock()
        give_up = clock.monotonic() + PATIENCE
        while not holds():
            if clock.monotonic() > give_up:
                pytest.fail(f"not within {PATIENCE} s: {what}; left: {self.leftovers()}\n{self.node.log.read_text()}")
            await clock.sleep(timedelta(milliseconds=100))


PARTS = {"scratch": "/part", "memory": "/memory-part"}


def describe(agent, is_ending) -> str:
    if agent.returncode is None:
        return "there are fewer changes"
    return f"killed ({agent.returncode}) while the pod {'ended' if is_ending else 'started'}"


@pytest.mark.parametrize("number", NUMBERS)
async def test_nothing_is_left_or_lost_whenever_the_agent_is_killed(node, manifest, cri, tmp_path, number):
    machine = KilledNode(node, tmp_path)
    async with node.started(killed_before=number) as agent:
        node.write("web", machine.pod(manifest))
        await machine.until(lambda: machine.is_up() or agent.returncode is not None, "the pod is up, or the agent dead")
        is_ending = agent.returncode is None
        if is_ending:
            node.remove("web")
            await machine.until(
                lambda: not machine.leftovers() or agent.returncode is not None, "the pod is gone, or the agent dead"
            )
        print(f"{number}: {describe(agent, is_ending)}")  # noqa: T201 - shown with -s
        # In the default run each number is one of a change that every machine makes.
        assert ALL or agent.returncode is not None
    async with node.started():
        if not is_ending:
            if number % 2:
                await machine.until(machine.is_up, "the pod is up")
            node.remove("web")
        await machine.until(lambda: not machine.leftovers(), "nothing is left of the pod")
    assert not is_ending or machine.is_up()
