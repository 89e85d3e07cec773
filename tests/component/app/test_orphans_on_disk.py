"""A pass of housekeeping over real directories: names in the log directory decide about logs alone."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import asyncio
import logging
import random
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.pod import Pod
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.pods import PodUID
from klet.model.stopping_pods import StoppingPods
from klet.objectcache.standalone import StandaloneObjects
from klet.pleg.cache import RuntimeCache
from klet.pods.store import PodStore
from klet.resources.pod_cgroups import NoPodCgroups
from klet.runtime.config.id_blocks import IdBlocks, choose_range
from klet.runtime.config.mapping_files import PodMappingFiles
from klet.runtime.config.sub_paths import BoundSubPaths
from klet.runtime.config.user_namespaces import UserNamespaceManager
from klet.runtime.log_files import LogFiles
from klet.runtime.pod_files import PodFiles
from klet.sync.housekeeping import Housekeeping, HousekeepingTrigger, Leftovers, PodMemories
from klet.sync.ledger import WorkerLedger
from klet.sync.metrics import register_housekeeping
from klet.sync.pod_host_resources import PodHostResources
from klet.sync.requeue import ResyncSettings
from klet.sync.workers import PodWorkers
from klet.testing.builders import make_container, make_pod
from klet.volumes.directories import PodDirectories
from klet.volumes.names import Layout
from klet.volumes.orphans import OrphanedPods
from klet.volumes.pod_volumes import PodVolumes

HOSTILE = ("x_y_..", "x_y_.", "x_y_", "_._..", "..._x_..")


class NoRuntime:
    """Nothing runs, so nothing is asked of the runtime, of workers or of handlers."""


class EndedVolumes:
    """No pod has a volume that is set up."""

    async def wait_for_unmount(self, uid: PodUID) -> None:
        pass

    async def pod_volumes_exist(self, uid: PodUID) -> bool:
        return False

    def release_unused(self) -> None:
        pass


@pytest.fixture
def threads():
    # One: what was found first has been dealt with when the last is.
    threads = Threads(limit=1)
    yield threads
    threads.close()


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    for name in ("pki/kubelet.key", "config.yaml", "pods/u-1/volumes/kubernetes.io~empty-dir/data/file"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("precious")
    return root


@pytest.fixture
def logs(tmp_path):
    logs = tmp_path / "logs"
    for name in (*HOSTILE, "default_web_u-1", "default_old_zz-gone"):
        (logs / name / "main").mkdir(parents=True)
        (logs / name / "main/0.log").write_text("")
    return logs


def build(root: Path, logs: Path, threads: Threads, journal: MemoryJournal, pods: PodStore) -> Housekeeping:
    clock, ledger = SystemClock(), WorkerLedger()
    nothing, ended = NoRuntime(), EndedVolumes()
    ids = choose_range(per_pod=65536, max_pods=10, granted=None)
    trigger = HousekeepingTrigger(sources_ready=lambda: True, clock=clock)
    host_resources = PodHostResources(
        files=PodFiles(root=root, logs=logs, cluster_domain="", threads=threads),
        volumes=PodVolumes(
            manager=ended,
            objects=StandaloneObjects(),
            orphans=OrphanedPods(volumes=ended, directories=PodDirectories(layout=Layout(root), threads=threads)),
        ),
        sub_paths=BoundSubPaths(root=root, threads=threads),
        user_namespaces=UserNamespaceManager(
            blocks=IdBlocks(ids=ids),
            files=PodMappingFiles(root=root, threads=threads),
            handlers=nothing,
            randomness=random.Random(1),
            is_enabled=False,
        ),
    )
    cache = RuntimeCache()
    workers = PodWorkers(
        admission=nothing,
        steps=nothing,
        statuses=nothing,
        is_live=cache.is_live,
        ledger=ledger,
        stopping_pods=StoppingPods(),
        recorder=journal,
        clock=clock,
        resync=ResyncSettings(timedelta(seconds=60), random.Random(1)),
        on_finished=trigger.finished,
    )
    trigger.ask()
    return Housekeeping(
        metrics=register_housekeeping(MetricRegistry()),
        pods=pods,
        ledger=ledger,
        workers=workers,
        cache=cache,
        memories=PodMemories(forget=(), remembered=tuple, status_of=lambda _: None),
        leftovers=Leftovers(
            killer=nothing,
            files=host_resources,
            links=LogFiles(logs=logs, links=logs.parent / "containers", threads=threads),
            cgroups=NoPodCgroups(),
            recorder=journal,
        ),
        trigger=trigger,
        clock=clock,
    )


def over(pod: Pod) -> Pod:
    """It is wanted, and is not to be started by this test."""
    return replace(pod, status=replace(pod.status, phase="Succeeded"))


async def test_names_of_logs_remove_nothing_else(root, logs, threads):
    (root / "pods/zz-gone/containers").mkdir(parents=True)
    pods, journal = PodStore(), MemoryJournal(clock=SystemClock())
    pods.put(over(make_pod(make_container("main"), name="web", uid="u-1")))
    before = {path for path in (*root.rglob("*"), *logs.rglob("*")) if "zz-gone" not in str(path)}
    async with asyncio.TaskGroup() as group, asyncio.timeout(30):
        with journal.follow() as records:
            task = group.create_task(build(root, logs, threads, journal, pods).run())
            while (await records.get()).finding.subject.uid != "zz-gone":
                pass
        task.cancel()
    assert {*root.rglob("*"), *logs.rglob("*")} == before


class FirstLine(logging.Handler):
    """Rings when something was logged; counts what came until then, and the line itself."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []
        self.rung = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.rung.set()


async def test_links_in_the_places_of_pods_are_one_line_in_the_log(root, logs, threads):
    names = {f"link-{number:03}" for number in range(200)}
    for name in names:
        (root / "pods" / name).symlink_to("nowhere")
    pods, journal = PodStore(), MemoryJournal(clock=SystemClock())
    pods.put(over(make_pod(make_container("main"), name="web", uid="u-1")))
    seen, logger = FirstLine(), logging.getLogger("klet")
    logger.addHandler(seen)
    try:
        async with asyncio.TaskGroup() as group, asyncio.timeout(30):
            task = group.create_task(build(root, logs, threads, journal, pods).run())
            await seen.rung.wait()
            task.cancel()
    finally:
        logger.removeHandler(seen)
    (record,) = seen.records
    assert (record.pods, record.uid) == (200, "link-000")
    assert all((root / "pods" / name).is_symlink() for name in names)


async def test_logs_of_pods_that_nobody_knows_are_still_found_and_removed(root, logs, threads):
    """By the garbage collector, below the log directory alone."""
    files = LogFiles(logs=logs, links=logs.parent / "containers", threads=threads)
    for directory in await files.directories():
        if directory.uid != "u-1":
            await files.remove_directory(directory)
    assert sorted(path.name for path in logs.iterdir()) == sorted([*HOSTILE, "default_web_u-1"])
    assert (root / "pods/u-1/volumes/kubernetes.io~empty-dir/data/file").read_text() == "precious"
