import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.codec import convert
from klet.api.pod import PodStatus
from klet.api.times import Time
from klet.api.volume import Volume
from klet.metrics import MetricRegistry
from klet.model.pull_times import PullTimes
from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState
from klet.pods.store import PodStore
from klet.sync.metrics import register_startups
from klet.sync.startups import PodStartups
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

SECOND = timedelta(seconds=1)
UID = "uid-1"
RUNNING = {
    "phase": "Running",
    "startTime": "2026-01-01T00:00:01Z",
    "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:02Z"}}}],
}
WAITING = {**RUNNING, "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]}


class Runtime:
    def __init__(self):
        self.known = {}

    def pods(self):
        return self.known


class Bench:
    """Pods of the API server that change."""

    def __init__(self):
        self.clock, self.pods, self.runtime, self.pulls = ManualClock(), PodStore(), Runtime(), PullTimes()
        self.registry = MetricRegistry()
        self.created = self.clock.now()
        self.startups = PodStartups(
            pods=self.pods,
            seen=self.runtime,
            pulls=self.pulls,
            metrics=register_startups(self.registry),
            clock=self.clock,
        )

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.startups.run())
            await self.clock.run(timedelta())
            yield
            task.cancel()

    async def show(self, status, *, after=timedelta(), **changes):
        """Show the pod as the API server has it after some time."""
        self.clock.advance(after)
        pod = make_pod("main", uid=changes.pop("uid", UID), name=changes.pop("name", "web"), source="api")
        metadata = replace(pod.metadata, creation_timestamp=Time.of(self.created))
        spec = replace(pod.spec, **changes)
        self.pods.put(replace(pod, metadata=metadata, spec=spec, status=convert(PodStatus, status)))
        await self.clock.run(timedelta())

    def sample(self, name):
        lines = self.registry.write().decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"kubelet_{name} "))

    @property
    def measured(self):
        """The sums of all starts and of the service level, and the first with a network."""
        return (
            self.sample("pod_start_total_duration_seconds_sum"),
            self.sample("pod_start_sli_duration_seconds_sum"),
            self.sample("first_network_pod_start_sli_duration_seconds"),
        )


@pytest.fixture
async def bench():
    made = Bench()
    async with made.running():
        yield made


async def test_a_start_ends_when_the_api_server_shows_all_containers_running(bench):
    await bench.show({})
    await bench.show(WAITING, after=2 * SECOND)
    assert bench.measured == (0, 0, 0)
    await bench.show(RUNNING, after=3 * SECOND)
    assert bench.measured == (5, 5, 5)
    await bench.show(RUNNING, after=3 * SECOND)
    assert bench.measured == (5, 5, 5)


async def test_pulls_and_init_containers_are_not_the_nodes_own_time(bench):
    bench.pulls.note(UID, began=0, ended=2)
    started = bench.clock.now()
    bench.runtime.known[UID] = PodRuntimeStatus(
        uid=UID,
        containers=tuple(
            ContainerRecord(
                id=name,
                sandbox_id="s",
                name=name,
                image="i",
                state=RuntimeContainerState.EXITED,
                created_at=started,
                started_at=started,
                finished_at=started + SECOND,
            )
            for name in ("first", "side", "main")
        ),
    )
    init = make_pod("first").spec.containers[0]
    await bench.show({}, init_containers=(init, replace(init, name="side", restart_policy="Always")))
    await bench.show(
        RUNNING, after=10 * SECOND, init_containers=(init, replace(init, name="side", restart_policy="Always"))
    )
    assert bench.measured == (10, 7, 7)


@pytest.mark.parametrize(
    ("first", "changes", "expected"),
    [
        pytest.param(RUNNING, {}, (0, 0, 0), id="one that ran before the agent did is no start"),
        pytest.param({}, {"host_network": True}, (5, 5, 0), id="one on the host's network says nothing of networks"),
        pytest.param(
            {}, {"volumes": (convert(Volume, {"name": "v", "hostPath": {"path": "/x"}}),)}, (5, 0, 0), id="with state"
        ),
        pytest.param(
            {},
            {"volumes": (convert(Volume, {"name": "v", "emptyDir": {}}),)},
            (5, 5, 5),
            id="with scratch space",
        ),
    ],
)
async def test_which_starts_count(bench, first, changes, expected):
    await bench.show(first, **changes)
    await bench.show(RUNNING, after=5 * SECOND, **changes)
    assert bench.measured == expected


async def test_only_the_first_pod_shows_how_long_networks_take(bench):
    await bench.show({})
    await bench.show(RUNNING, after=2 * SECOND)
    await bench.show({}, uid="uid-2", name="next")
    await bench.show(RUNNING, after=5 * SECOND, uid="uid-2", name="next")
    assert bench.measured == (9, 9, 2)


async def test_a_pod_that_goes_before_it_has_started_is_forgotten(bench):
    bench.pulls.note(UID, began=0, ended=2)
    await bench.show({})
    bench.pods.remove(UID)
    await bench.clock.run(timedelta())
    assert bench.pulls.seconds(UID) == 0
    await bench.show(RUNNING)
    assert bench.measured == (0, 0, 0)
