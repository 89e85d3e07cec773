"""CPU time of one snapshot of the node and of its summary, on real cgroups: `python -m bench.stats`. Needs root.

Makes pods of a sandbox and a container with a process each, below a cgroup of its own in every hierarchy, and removes
them again.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.stats import FsStats, RuntimeStats, Summary, encode
from klet.host.cgroups.discover import find_cgroup_files, find_hierarchy
from klet.host.cgroups.resources import CgroupResources
from klet.host.machine.filesystems import FilesystemReader
from klet.host.usage_host import UsageHost
from klet.model.pods import PodUID
from klet.model.runtime import (
    ContainerId,
    ContainerRecord,
    PodRuntimeStatus,
    RuntimeContainerState,
    SandboxId,
    SandboxRecord,
)
from klet.model.stats import StatsSnapshot
from klet.stats.collector import StatsCollector, StatsSettings
from klet.stats.sandbox_images import SandboxImages
from klet.stats.summary import NodeDisks, SummaryInputs, build_summary
from klet.wire import cri_v1_pb2 as pb

ROUNDS = 10


class MadePods:
    """The pods whose cgroups were made."""

    def __init__(self, count: int) -> None:
        self._pods = {uid: _pod(uid) for uid in (PodUID(str(uuid.uuid4())) for _ in range(count))}

    def pods(self) -> dict[PodUID, PodRuntimeStatus]:
        return self._pods


def _pod(uid: PodUID) -> PodRuntimeStatus:
    sandbox, container = uuid.uuid4().hex * 2, uuid.uuid4().hex * 2
    now = datetime.now(UTC)
    return PodRuntimeStatus(
        uid=uid,
        name=f"pod-{uid}",
        namespace="default",
        sandboxes=(SandboxRecord(id=SandboxId(sandbox), attempt=0, ready=True, created_at=now),),
        containers=(
            ContainerRecord(
                id=ContainerId(container),
                sandbox_id=SandboxId(sandbox),
                name="main",
                image="busybox",
                state=RuntimeContainerState.RUNNING,
                created_at=now,
            ),
        ),
    )


class NoDetails:
    """A runtime that says nothing of its sandboxes."""

    async def pod_sandbox_status(self, request: pb.PodSandboxStatusRequest) -> pb.PodSandboxStatusResponse:
        return pb.PodSandboxStatusResponse(status=pb.PodSandboxStatus(id=request.pod_sandbox_id))


async def measure(pods: MadePods, root: str) -> dict[str, float]:
    clock, threads = SystemClock(), Threads(limit=8)
    host = UsageHost(
        files=find_cgroup_files(),
        filesystems=FilesystemReader(own=Path("/var/lib/kubelet")),
        threads=threads,
        clock=clock,
    )
    collector = StatsCollector(
        host=host,
        seen=pods,
        images=SandboxImages(runtime=NoDetails(), clock=clock),
        settings=StatsSettings(),
        pods_root=lambda: f"{root}/kubepods",
        clock=clock,
    )
    snapshot = await collector.snapshot()
    read, composed, walls, longest = [], [], [], 0.0
    for _ in range(ROUNDS):
        watch = asyncio.ensure_future(_watch())
        started, wall = _cpu(), time.perf_counter()
        snapshot = await collector.snapshot(max_age=timedelta())
        read.append(_cpu() - started)
        walls.append(time.perf_counter() - wall)
        watch.cancel()
        longest = max(longest, await watch)
        started = _cpu()
        size = len(encode(_summary(snapshot, pods)))
        composed.append(_cpu() - started)
    threads.close()
    return {
        "cgroups": len(snapshot.cgroups),
        "snapshot_cpu_ms": round(min(read) * 1000, 1),
        "snapshot_cpu_ms_mean": round(sum(read) / len(read) * 1000, 1),
        "snapshot_wall_ms": round(min(walls) * 1000, 1),
        "summary_cpu_ms": round(min(composed) * 1000, 1),
        "summary_bytes": size,
        "loop_blocked_ms": round(longest * 1000, 1),
    }


async def _watch() -> float:
    """Return the longest time in which the event loop did not run."""
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, last = max(longest, now - last - 0.001), now
    except asyncio.CancelledError:
        return longest


def _summary(snapshot: StatsSnapshot, pods: MadePods) -> Summary:
    now = datetime.now(UTC)
    root = snapshot.root
    if root is None:
        raise SystemExit("the root cgroup cannot be read")
    fs = FsStats(time=now, used_bytes=0)
    return build_summary(
        SummaryInputs(
            node_name="node",
            now=now,
            snapshot=snapshot,
            root=root,
            pods=pods.pods(),
            booted_at=now,
            agent_started=now,
            unknown={},
            disks=NodeDisks(fs=fs, runtime=RuntimeStats(image_fs=fs, container_fs=fs), pods={}),
        )
    )


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100)
    pods = MadePods(parser.parse_args().pods)
    hierarchy, root = find_hierarchy(), f"/klet-bench-{os.getpid()}"
    nothing = CgroupResources()
    processes = []
    tree = find_cgroup_files().tree
    try:
        for uid, pod in pods.pods().items():
            for name in (pod.sandboxes[0].id, pod.containers[0].id):
                path = f"{root}/kubepods/burstable/pod{uid}/{name}"
                hierarchy.create(path, nothing)
                process = subprocess.Popen(["sleep", "1000"])
                processes.append(process)
                Path(f"{tree}{path}/cgroup.procs").write_text(str(process.pid))
        print(json.dumps(asyncio.run(measure(pods, root))))
    finally:
        for process in processes:
            process.kill()
            process.wait()
        hierarchy.remove(root)


if __name__ == "__main__":
    main()
