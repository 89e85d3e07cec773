"""The shims that keep the pods of a private containerd: finds them, and makes one hang."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klet.cri.client import CriClient
from klet.testing.containerd import ContainerdFailed, PrivateContainerd
from klet.wire import cri_v1_pb2 as pb


async def shim_of(client: CriClient, uid: str, containerd: PrivateContainerd) -> int:
    """Return the process of the shim that keeps a pod."""
    wanted = pb.PodSandboxFilter(label_selector={"io.kubernetes.pod.uid": uid})
    [sandbox] = (await client.list_pod_sandbox(pb.ListPodSandboxRequest(filter=wanted))).items
    return _find_shim(sandbox.id, str(containerd.settings.socket))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop the process until the end of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _find_shim(sandbox: str, socket: str) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has just ended
        is_shim = arguments[0].rpartition("/")[2].startswith("containerd-shim")
        if is_shim and {sandbox, socket} <= set(arguments):
            return int(process.name)
    raise ContainerdFailed(f"no shim keeps sandbox {sandbox}")
