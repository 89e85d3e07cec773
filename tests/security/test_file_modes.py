"""Files of a node that was started with umask 000: nobody but their owner may change them, nor read what is secret."""

import asyncio
import itertools
import os
import stat
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.host.inotify import watch_directory
from klet.testing.builders import IMAGE

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def writable(*roots):
    """What somebody else may change, by its path; logs are the runtime's."""
    for root in roots:
        for path in (
            root,
            *(Path(folder, each) for folder, *names in os.walk(root) for each in itertools.chain(*names)),
        ):
            with suppress(FileNotFoundError):  # the agent has given it its name meanwhile
                if not path.is_symlink() and path.suffix != ".log" and path.lstat().st_mode & OTHERS_WRITE:
                    yield path


async def until_there(file):
    async with asyncio.timeout(30), aclosing(watch_directory(file.parent)) as changes:
        async for _ in changes:
            if file.exists():
                return


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_nobody_else_may_write(attack, pod, no_umask):
    target = await attack.on(cluster=True)
    for setting in ("tlsCertFile", "tlsPrivateKeyFile"):
        del target.node.settings[setting]
    pki = attack.directory / "pki"
    pki.mkdir(mode=0o755)
    async with attack.run(target, "--klet-offline"):
        await target.cluster.client.create(Secret(metadata=ObjectMeta(name="s"), data={"k": b"v"}), "default")
        names = ("secret", "empty")
        mounts = [{"name": name, "mountPath": f"/{name}"} for name in names]
        volumes = [{"name": "secret", "secret": {"secretName": "s"}}, {"name": "empty", "emptyDir": {}}]
        spec = {"containers": [{"name": "main", "image": IMAGE, "volumeMounts": mounts}], "volumes": volumes}
        made = await target.cluster.bind("web", spec)
        await target.agent.until(lambda pods: "web" in pods and pods["web"].status.phase == "Running", what="the pod")
        await target.start(pod("static"))
        await until_there(pki / "kubelet.key")
        uid = made.metadata.uid
        of_pod = target.node.root / "pods" / uid
        words = list((target.node.root / "pods").glob("*/containers/*/*"))
        # Volumes and termination message files are for whichever user a container has, as upstream's are. Behind the
        # directory of their pod nobody else gets at them.
        expected = {target.volume(uid, "empty-dir", "empty"), target.volume(uid, "secret", "secret"), *words}
        assert sorted(set(writable(target.node.root, target.node.logs, pki)) ^ expected) == []
        assert len(words) == 2
        assert mode_of(of_pod / "containers") == 0o750
        assert mode_of(of_pod / "volumes") == 0o750
        keys = [path for path in (*pki.iterdir(), *target.node.root.rglob("*.key")) if path.suffix in {".key", ".pem"}]
        assert keys
        assert {mode_of(path) for path in keys} == {0o600}
        assert mode_of(target.node.root / "klet.sock") == 0o600
        assert mode_of(target.node.root / "klet-memory.json") & 0o077 == 0
        assert mode_of(target.volume(uid, "secret", "secret") / "k") == 0o644
