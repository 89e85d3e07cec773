"""The agent is killed again and again while pods come, change, crash, end and go.

containerd's own events are the witness: what started when, and what ended when.
"""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from asyncio.subprocess import PIPE
from collections import defaultdict
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.testing.leftovers import find_cgroups
from klet.wire import containerd_events_pb2 as events
from klet.wire import containerd_events_service_pb2 as service
from klet.wire import cri_v1_pb2 as pb
from klet.wire.containerd_types_pb2 import Envelope
from klet.wire.methods import method_of

SUBSCRIBE = method_of(service.DESCRIPTOR.services_by_name["Events"], "Subscribe", service.SubscribeRequest, Envelope)
PODS = 20
KILLS = 50
KILLED = 137
DEADLINE = 40
STARTS = "--klet-max-parallel-starts=3"
LIVES = (0.4, 0.8, 2.0)
"""Seconds; in a short life little is done, and most of it broken off."""
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
SETTINGS = {
    "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    "featureGates": {"KubeletCrashLoopBackOffMax": True},
}


@dataclass(frozen=True, slots=True)
class Start:
    """What a container is: an instance of a pod's container."""

    uid: str
    container: str
    restarts: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a container; without an end it runs on."""

    start: Start
    began: datetime
    ended: datetime | None
    exit_code: int


class Witness:
    """Follows the runtime for the whole test."""

    def __init__(self, cri) -> None:
        self._cri = cri
        self._news = asyncio.Event()
        self.known: dict[str, Start] = {}
        self.started: dict[str, datetime] = {}
        self.ended: dict[str, tuple[datetime, int]] = {}

    @asynccontextmanager
    async def watching(self):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._follow_events())
            yield
            await self._until_all_ended()
            task.cancel()

    async def _follow_events(self) -> None:
        request = service.SubscribeRequest(filters=['namespace==k8s.io,topic~="^/tasks/(start|exit)"'])
        async for envelope in self._cri.runtime.stream(SUBSCRIBE, request):
            at = envelope.timestamp.ToDatetime(UTC)
            if envelope.event.type_url.endswith("TaskStart"):
                started = events.TaskStart.FromString(envelope.event.value).container_id
                self.started[started] = at
                await self._identify(started)
            else:
                end = events.TaskExit.FromString(envelope.event.value)
                if end.id == end.container_id:
                    self.ended.setdefault(end.container_id, (at, end.exit_status))
            self._news.set()

    async def _identify(self, container_id: str) -> None:
        """Events do not say whose container it is. Sandboxes are not in the list of containers, and need no name."""
        wanted = pb.ListContainersRequest(filter=pb.ContainerFilter(id=container_id))
        for container in (await self._cri.list_containers(wanted)).containers:
            self.known[container.id] = Start(
                container.labels["io.kubernetes.pod.uid"],
                container.metadata.name,
                int(container.annotations["io.kubernetes.container.restartCount"]),
            )

    async def _until_all_ended(self) -> None:
        """Whatever ran has ended, what the runtime never listed included: the events of it may come a little later."""
        try:
            async with asyncio.timeout(DEADLINE):
                while self.started.keys() - self.ended.keys():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pytest.fail(f"they run on: {sorted(self.started.keys() - self.ended.keys())}")

    def runs(self) -> dict[tuple[str, str], list[Run]]:
        """Every run of each container of each pod, in order."""
        found = defaultdict(list)
        for container_id, at in self.started.items():
            if container_id in self.known:
                start = self.known[container_id]
                ended, code = self.ended.get(container_id, (None, 0))
                found[start.uid, start.container].append(Run(start, at, ended, code))
        return {key: sorted(runs, key=lambda run: run.began) for key, runs in found.items()}


def build_pod(manifest, number: int, version: int) -> dict:
    """One of four kinds, so that each has five pods."""
    name = f"pod-{number}"
    mark = f": {version}; "
    match number % 4:
        case 0:
            return manifest(name, main=f"{mark}{FOREVER}", side=FOREVER)
        case 1:
            return manifest(name, main=f"{mark}sleep 0.5; exit 1")
        case 2:
            return manifest(name, main=f"{mark}sleep 0.3", spec={"restartPolicy": "Never"})
        case _:
            return manifest(name, init={"setup": "sleep 0.2"}, main=f"{mark}{FOREVER}")


def shorten(pod: dict) -> dict:
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    return pod


NURSERY = """
import os, sys
from klet.app.run import main
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        os._exit(main(sys.argv[1:]))
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@asynccontextmanager
async def nursery(node):
    """Agents that need not import everything first: fifty starts of Python take longer than the whole test may."""
    node.config.write_text(json.dumps(node.settings | SETTINGS))
    arguments = [f"--config={node.config}", f"--root-dir={node.root}", "--hostname-override=node", STARTS]
    with node.log.open("ab") as log:
        mother = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", NURSERY, *arguments, stdin=PIPE, stdout=PIPE, stderr=log
        )

    @asynccontextmanager
    async def born():
        """One life, from its birth to its violent end."""
        mother.stdin.write(b"\n")
        agent = int(await mother.stdout.readline())
        try:
            yield
        finally:
            os.kill(agent, signal.SIGKILL)
            status = int(await mother.stdout.readline())
        assert os.WTERMSIG(status) == signal.SIGKILL, node.log.read_text()

    try:
        yield born
    finally:
        mother.stdin.close()
        await mother.wait()


class Churn:
    """Changes the manifests at random."""

    def __init__(self, node, manifest, randomness: random.Random) -> None:
        self._node = node
        self._manifest = manifest
        self._random = randomness
        self._version = 0
        self.present: set[int] = set()

    def step(self) -> None:
        number = self._random.randrange(PODS)
        if number in self.present and self._random.random() < 0.5:
            self._node.remove(f"pod-{number}")
            self.present.discard(number)
        else:
            self._version += 1
            self._node.write(f"pod-{number}", shorten(build_pod(self._manifest, number, self._version)))
            self.present.add(number)

    async def go_on_for(self, seconds: float) -> None:
        """A step at once and then now and then."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.step()
            await SystemClock().sleep(timedelta(seconds=min(left, self._random.uniform(0.2, 1.0))))

    def remove_all(self) -> None:
        for number in sorted(self.present):
            self._node.remove(f"pod-{number}")
        self.present.clear()


async def test_kills_at_any_moment_start_nothing_twice_and_leak_nothing(node, manifest, cri, containerd):
    seed = int(os.environ.get("KLET_CHURN_SEED", "0")) or random.randrange(1, 1 << 32)
    print(f"KLET_CHURN_SEED={seed}")  # noqa: T201 - how to run it again
    randomness = random.Random(seed)
    churn = Churn(node, manifest, randomness)
    witness = Witness(cri)
    node.log.touch()

    async def is_nothing_left() -> bool:
        sandboxes = (await cri.list_pod_sandbox(pb.ListPodSandboxRequest())).items
        files = (*(node.root / "pods").iterdir(), *node.logs.iterdir())
        return not (sandboxes or files or find_cgroups("pod*", below=f"{containerd.cgroup_parent}/kubepods"))

    async with witness.watching():
        for _ in range(PODS):
            churn.step()
        async with nursery(node) as born:
            for _ in range(KILLS):
                async with born():
                    await churn.go_on_for(randomness.choice(LIVES) * randomness.random())
        async with node.run(**SETTINGS) as agent:
            wanted = {f"pod-{number}" for number in churn.present}
            await agent.until(lambda pods: pods.keys() == wanted and all(map(is_settled, pods.values())), what="rest")
            churn.remove_all()
            await agent.until(lambda pods: not pods, what="the end of all pods")
            await agent.until_recorded(is_nothing_left, what="the removal of everything")
    if complaints := check_lives(witness):
        pytest.fail("\n".join(f"{complaint}\n{story(node, uid)}" for uid, complaint in complaints))
    assert names_in(node.logs) == []
    assert names_in(node.logs.parent / "containers") == []
    assert "Traceback" not in node.log.read_text()


def is_settled(pod) -> bool:
    """Jobs are done; what is to run forever runs; what crashes has crashed."""
    status = pod.status
    if pod.spec.restart_policy == "Never":
        return status.phase == "Succeeded"
    crashes = int(pod.metadata.name.split("-")[1]) % 4 == 1
    return status.phase == "Running" and all(
        c.ready or (crashes and c.restart_count) for c in status.container_statuses
    )


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def story(node, uid: str) -> str:
    """What the journal says of a pod."""
    query = "SELECT at, decision, container, message FROM causes WHERE uid = ? ORDER BY id"
    with closing(sqlite3.connect(node.root / "klet-journal.db")) as journal:
        return "\n".join(" ".join(map(str, row)) for row in journal.execute(query, (uid,)))


def check_lives(witness: Witness) -> list[tuple[str, str]]:
    """Whatever was killed when: one run after the other, each counted once. Complaints by pod."""
    complaints = []
    for (uid, name), runs in witness.runs().items():
        for before, after in pairwise(runs):
            if before.ended is None or before.ended > after.began:
                complaints.append((uid, f"{name}: {after} began before {before} had ended"))
        counts = [run.start.restarts for run, following in pairwise([*runs, None]) if not is_broken_off(run, following)]
        if counts != list(range(len(counts))):
            complaints.append((uid, f"{name}: restart counts {counts} of {runs}"))
    return complaints


def is_broken_off(run: Run, following: Run | None) -> bool:
    """The runtime kills what it has just started if the agent that asked for it is gone; that is no run that counts."""
    return run.exit_code == KILLED and following is not None and following.start == run.start
