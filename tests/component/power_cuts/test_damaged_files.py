"""The agent starts with each file of its state empty, cut short or full of zeros, as a loss of power may leave it."""

import asyncio
import json
import os
from contextlib import aclosing

import pytest

from klet.host.inotify import watch_directory
from klet.testing.builders import IMAGE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run the tests as root")

CHECKPOINTS = ("klet-memory.json", "klet-boot.json", "klet-offline/pods.json", "klet-offline/surroundings.json")
DAMAGES = [
    pytest.param(lambda _data: b"", id="empty"),
    pytest.param(lambda data: data[: len(data) // 2], id="half"),
    pytest.param(lambda data: bytes(len(data)), id="full of zeros"),
]


def manifest(name):
    spec = {"containers": [{"name": "main", "image": IMAGE}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def runs(pods, *names):
    return all(name in pods and pods[name].status.phase == "Running" for name in names)


async def until_written(target, files):
    """Wait until the agent has put its state on disk."""
    for path in (target.node.root / file for file in files):
        async with asyncio.timeout(20), aclosing(watch_directory(path.parent)) as changes:
            async for _ in changes:
                if path.exists():
                    break


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_agent_starts_sets_damaged_files_aside_and_says_so(attack, damage):
    flags = ("--klet-offline",)
    # Certificates of its own, made by itself.
    target = await attack.on(cluster=True, tlsCertFile="", tlsPrivateKeyFile="")
    root, pki = target.node.root, target.directory / "pki"
    async with attack.run(target, *flags):
        await target.start(manifest("static"))
        await target.cluster.bind("bound", {"containers": [{"name": "main", "image": IMAGE}]})
        await target.agent.until(lambda pods: runs(pods, "static", "bound"), what="both pods")
        await until_written(target, (*CHECKPOINTS, pki / "kubelet.crt"))
        assert await target.agent.stop() == 0
    made = len(target.runtime.containers())
    files = [*(root / name for name in (*CHECKPOINTS, "klet-offline/key")), pki / "kubelet.crt"]
    journal, synced = root / "klet-journal.db", root / "klet-memory.json.synced"
    for path in (*files, journal, *((synced,) if synced.exists() else ())):
        path.write_bytes(damage(path.read_bytes()))

    async with attack.run(target, *flags):
        await target.agent.until(lambda pods: runs(pods, "static", "bound"), what="both pods again")
        # Everything was rebuilt from the runtime and the API server: no container was started again.
        assert len(target.runtime.containers()) == made
        records = [json.loads(line) for line in (await target.agent.text("/klet/v1/journal")).splitlines()]
        damaged = {each["measurements"]["file"] for each in records if each["decision"] == "StateFileDamaged"}
        # The key is set aside with its certificate. An empty file is a new journal.
        expected = {*files, pki / "kubelet.key", *((journal,) if damage(b"xx") else ())}
        assert damaged == {str(path) for path in expected}
        for path in files:
            assert list(path.parent.glob(f"{path.name}.corrupt*")), path
        log = target.agent.log
        assert log.count("Checkpoint is damaged and was set aside") >= len(CHECKPOINTS)
        assert "The key of the node is damaged and was set aside" in log
        assert "A serving certificate was damaged and set aside" in log
        await until_written(target, (*CHECKPOINTS, pki / "kubelet.crt"))
        assert await target.agent.stop() == 0
