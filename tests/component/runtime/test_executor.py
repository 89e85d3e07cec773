"""Carrying out pod actions on the fake runtime, in upstream's order."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerPort, EphemeralContainer
from klet.cri.errors import Code
from klet.journal.records import CauseQuery
from klet.model.reasons import Reason
from klet.model.runtime import RuntimeContainerState
from klet.network.dns import ResolvConfError
from klet.runtime.actions import ContainerKill, PodActions
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import FakeImage, Fault, Script
from klet.testing.fake_runtime.faults import DelayCall, Fail, HalfDone
from klet.testing.fake_runtime.lives import by_name, fails_to_create, lives_forever, runs_for

QUICK = Script(lives=by_name({"init": lambda _: runs_for(timedelta(seconds=1))}))
POD_NAME = "pod_default(uid-1)"


def test_a_new_pod_gets_a_sandbox_and_its_containers_in_order(on_bench):
    async def test(bench) -> None:
        outcome = await bench.sync(make_pod("a", "b"))
        assert (outcome.errors, dict(outcome.failures), outcome.retry_at) == ((), {}, None)
        assert bench.called() == ["RunPodSandbox", *["CreateContainer", "StartContainer"] * 2]
        names = [call.request.config.metadata.name for call in bench.calls("CreateContainer")]
        assert names == ["a", "b"]
        sandbox = bench.calls("RunPodSandbox")[0].request.config
        assert sandbox.linux.cgroup_parent == "/kubepods/poduid-1"
        assert list(sandbox.dns_config.servers) == ["10.0.0.10"]
        assert bench.calls("CreateContainer")[0].request.sandbox_config == sandbox

    on_bench(test)


def test_what_a_first_start_made_is_known_if_all_went_well(on_bench):
    script = Script(lives=by_name({"bad": lambda _: fails_to_create("no")}))

    async def test(bench) -> None:
        good, bad = make_pod("a", "b", name="good", uid="u-1"), make_pod("a", "bad", name="bad", uid="u-2")
        first = (await bench.sync(good)).first
        status = await bench.status(good)
        assert (first.sandbox, *first.containers) == (
            status.sandboxes[0],
            status.newest("a").id,
            status.newest("b").id,
        )
        assert (await bench.sync(bad)).first is None
        bench.runtime.end_container(first.containers[0], 1)
        again = await bench.sync(good)
        assert (again.first, again.started) == (None, {"a"})

    on_bench(test, script)


def test_a_pod_that_is_as_it_should_be_is_left_alone(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        before = bench.called()
        await bench.sync(pod)
        assert bench.called() == before

    on_bench(test)


def test_init_containers_come_first_one_after_the_other(on_bench):
    async def test(bench) -> None:
        pod = make_pod("main", init=["init"])
        await bench.sync(pod)
        assert {record.name for record in (await bench.status(pod)).running()} == {"init"}
        await bench.sleep(1)
        await bench.sync(pod)
        assert {record.name for record in (await bench.status(pod)).running()} == {"main"}

    on_bench(test, QUICK)


def test_a_failing_init_container_stops_the_sync_and_a_failing_sidecar_does_not(on_bench):
    broken = Script(lives=by_name({"side": lambda _: fails_to_create("no"), "init": lambda _: fails_to_create("no")}))

    async def test(bench) -> None:
        pod = make_pod("main", init=[make_container("side", restart_policy="Always"), "init"])
        place = await bench.sync(make_pod("main", init=[make_container("side", restart_policy="Always")]))
        assert set(place.failures) == {"side"}
        status = await bench.status(pod)
        sandbox = status.sandboxes[0].id
        actions = PodActions(sandbox_id=sandbox, start_init=(0,), start=(0,))
        assert set((await bench.carry_out(pod, status, actions)).failures) == {"side"}
        assert {record.name for record in (await bench.status(pod)).running()} == {"main"}
        actions = PodActions(sandbox_id=sandbox, start_init=(1, 0), start=(0,))
        assert set((await bench.carry_out(pod, status, actions)).failures) == {"init"}

    on_bench(test, broken)


def test_a_failing_container_does_not_stop_the_others(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "broken", "b")
        outcome = await bench.sync(pod)
        assert set(outcome.failures) == {"broken"}
        assert {record.name for record in (await bench.status(pod)).running()} == {"a", "b"}

    on_bench(test, Script(lives=by_name({"broken": lambda _: fails_to_create("no")})))


def test_ephemeral_containers_start_too(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        debug = EphemeralContainer(name="debug", image=pod.spec.containers[0].image)
        pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=(debug,)))
        await bench.sync(pod)
        assert {record.name for record in (await bench.status(pod)).running()} == {"a", "debug"}

    on_bench(test)


def test_a_container_is_killed_before_it_is_started_again(on_bench):
    async def test(bench) -> None:
        await bench.sync(make_pod("a", "b"))
        changed = make_pod(make_container("a", image="klet.local/busybox:2"), "b")
        bench.runtime.load_image(FakeImage("klet.local/busybox:2"))
        await bench.sync(changed)
        assert bench.called()[-3:] == ["StopContainer", "CreateContainer", "StartContainer"]
        status = await bench.status(changed)
        assert len(status.running()) == 2
        assert status.newest("a").restart_count == 1

    on_bench(test)


def test_a_kill_that_fails_ends_the_sync(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b")
        await bench.sync(pod)
        bench.runtime.faults.add(Fault("StopContainer", Fail(Code.UNKNOWN, "stuck")))
        status = await bench.status(pod)
        kills = tuple(ContainerKill(record.id, record.name, "because") for record in status.running())
        actions = PodActions(sandbox_id=status.sandboxes[0].id, kill=kills, start=(0,))
        before = len(bench.called())
        outcome = await bench.carry_out(pod, status, actions)
        first = kills[0].name
        assert outcome.errors == (
            (
                f'failed to "KillContainer" for "{first}" with KillContainerError: '
                '"rpc error: code = Unknown desc = stuck"'
            ),
        )
        assert bench.called()[before:] == ["StopContainer"]
        recorded = ("FailedKillContainer", "error killing container: rpc error: code = Unknown desc = stuck")
        assert recorded in await bench.events()

    on_bench(test)


def test_a_pod_that_cannot_be_killed_gets_no_new_sandbox(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        bench.runtime.kill_sandbox(bench.runtime.sandboxes()[0].id)
        bench.runtime.faults.add(Fault("StopPodSandbox", Fail(Code.UNKNOWN, "stuck")))
        outcome = await bench.sync(pod)
        assert outcome.errors == (
            'failed to "KillPodSandbox" for "uid-1" with KillPodSandboxError: "rpc error: code = Unknown desc = stuck"',
        )
        assert len(bench.runtime.sandboxes()) == 1

    on_bench(test)


def test_a_dead_sandbox_is_replaced_and_initialization_starts_over(on_bench):
    async def test(bench) -> None:
        pod = make_pod("main", init=[make_container("side", restart_policy="Always"), "init"])
        for _ in range(3):
            await bench.sync(pod)
            await bench.sleep(1)
        assert {record.name for record in (await bench.status(pod)).running()} == {"main", "side"}
        bench.runtime.kill_sandbox(bench.runtime.sandboxes()[0].id)
        await bench.sync(pod)
        status = await bench.status(pod)
        assert [(sandbox.attempt, sandbox.ready) for sandbox in status.sandboxes] == [(1, True), (0, False)]
        assert {record.name for record in status.running()} == {"side"}
        old = status.sandboxes[1].id
        assert {record.name for record in status.containers if record.sandbox_id == old} == {"main"}
        for _ in range(3):
            await bench.sleep(1)
            await bench.sync(pod)
        assert {record.name for record in (await bench.status(pod)).running()} == {"main", "side"}

    on_bench(test, QUICK)


def test_initialization_that_starts_over_counts_on_although_not_all_of_the_last_could_be_removed(on_bench):
    lives = by_name({"init": lambda _: runs_for(timedelta(seconds=1), exit_code=1)})

    async def test(bench) -> None:
        pod = make_pod("main", init=["init"])
        for _ in range(2):
            await bench.sync(pod)
            await bench.sleep(60)
        assert [record.restart_count for record in (await bench.status(pod)).containers] == [1, 0]
        bench.runtime.kill_sandbox(bench.runtime.sandboxes()[0].id)
        bench.runtime.faults.add(Fault("RemoveContainer", HalfDone()))
        assert (await bench.sync(pod)).errors
        assert [record.restart_count for record in (await bench.status(pod)).containers] == [1]
        await bench.sync(pod)
        assert [record.restart_count for record in (await bench.status(pod)).containers] == [2]

    on_bench(test, Script(lives=lives))


def test_of_an_init_container_that_fails_again_and_again_the_last_end_is_kept_with_its_log(on_bench):
    failing = Script(lives=by_name({"init": lambda _: runs_for(timedelta(seconds=1), exit_code=1)}))

    async def test(bench) -> None:
        pod = make_pod("main", init=["init"])
        for _ in range(4):
            await bench.sync(pod)
            await bench.sleep(60)
        assert [record.restart_count for record in (await bench.status(pod)).containers] == [3, 2]
        assert len(bench.logs.links) == 2

    on_bench(test, failing)


def test_killing_the_pod_alone_stops_everything_and_starts_nothing(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b")
        await bench.sync(pod)
        status = await bench.status(pod)
        outcome = await bench.carry_out(pod, status, PodActions(kill_pod=True))
        assert outcome.errors == ()
        after = await bench.status(pod)
        assert not after.is_live
        assert {record.state for record in after.containers} == {RuntimeContainerState.EXITED}

    on_bench(test)


def test_in_a_pod_that_was_killed_for_good_no_ephemeral_container_starts(on_bench):
    async def test(bench) -> None:
        pod = make_pod("main")
        await bench.sync(pod)
        status = await bench.status(pod)
        pod = replace(pod, spec=replace(pod.spec, ephemeral_containers=(EphemeralContainer(name="debug", image="x"),)))
        outcome = await bench.carry_out(pod, status, PodActions(kill_pod=True, start_ephemeral=(0,)))
        assert (outcome.errors, len(bench.calls("CreateContainer"))) == ((), 1)

    on_bench(test)


@pytest.mark.parametrize(
    ("text", "measured"),
    [
        pytest.param('failed to setup network for sandbox "s": no plugin', {"step": "network"}, id="no network"),
        pytest.param("no space left on device", {}, id="something else"),
    ],
)
def test_the_record_of_a_sandbox_that_failed_says_whether_it_was_the_network(on_bench, text, measured):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("RunPodSandbox", Fail(Code.UNKNOWN, text)))
        await bench.sync(make_pod("a"))
        (cause,) = await bench.journal.find(CauseQuery())
        assert (cause.finding.decision, cause.finding.measurements) == (Reason.FAILED_CREATE_POD_SANDBOX, measured)

    on_bench(test)


def test_a_sandbox_that_cannot_be_made(on_bench):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("RunPodSandbox", Fail(Code.UNKNOWN, "no network")))
        outcome = await bench.sync(make_pod("a"))
        error = "rpc error: code = Unknown desc = no network"
        assert outcome.errors == (
            (
                f'failed to "CreatePodSandbox" for "{POD_NAME}" with CreatePodSandboxError: '
                f'"Failed to create sandbox for pod "{POD_NAME}": {error}"'
            ),
        )
        assert dict(outcome.failures) == {}
        assert await bench.events() == [("FailedCreatePodSandBox", f"Failed to create pod sandbox: {error}")]

    on_bench(test)


def test_a_sandbox_that_cannot_be_described(on_bench):
    async def test(bench) -> None:
        bench.dns.broken = ResolvConfError("no file")
        outcome = await bench.sync(make_pod("a"))
        assert outcome.errors == (
            (
                f'failed to "CreatePodSandbox" for "{POD_NAME}" with CreatePodSandboxError: '
                f'"Failed to generate sandbox config for pod "{POD_NAME}": no file"'
            ),
        )
        assert await bench.events() == [("FailedCreatePodSandBox", "Failed to create pod sandbox: no file")]
        assert bench.called() == []

    on_bench(test)


def test_a_sandbox_that_is_there_but_can_no_longer_be_described(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        bench.dns.broken = ResolvConfError("no file")
        status = await bench.status(pod)
        sandbox = status.sandboxes[0].id
        outcome = await bench.carry_out(pod, status, PodActions(sandbox_id=sandbox, start=(0,)))
        assert outcome.errors == (
            (
                f'failed to "ConfigPodSandbox" for "{sandbox}" with ConfigPodSandboxError: '
                f'"GeneratePodSandboxConfig for pod "{POD_NAME}" failed: no file"'
            ),
        )

    on_bench(test)


def test_a_new_sandbox_whose_status_cannot_be_read(on_bench):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("PodSandboxStatus", Fail(Code.UNKNOWN, "lost")))
        outcome = await bench.sync(make_pod("a"))
        error = "rpc error: code = Unknown desc = lost"
        assert outcome.errors == (f"failed to SyncPod: {error}",)
        assert await bench.events() == [("FailedPodSandBoxStatus", f"Unable to get pod sandbox status: {error}")]
        assert bench.calls("CreateContainer") == []

    on_bench(test)


def test_a_pod_on_the_hosts_network_has_no_addresses_of_its_own(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        pod = replace(pod, spec=replace(pod.spec, host_network=True))
        await bench.sync(pod)
        mounts = bench.calls("CreateContainer")[0].request.config.mounts
        assert [mount.host_path for mount in mounts] == ["/hosts/"]

    on_bench(test)


@pytest.mark.parametrize(("pods", "seconds"), [(2, 1), (3, 2), (5, 3)])
def test_only_so_many_pods_start_at_once(on_bench, pods, seconds):
    async def test(bench) -> None:
        bench.runtime.faults.add(Fault("RunPodSandbox", DelayCall(timedelta(seconds=1)), count=None))
        async with asyncio.TaskGroup() as group:
            for number in range(pods):
                group.create_task(bench.sync(make_pod("a", name=f"p{number}", uid=f"u-{number}")))
        assert bench.clock.monotonic() == seconds

    on_bench(test, Script(lives=lives_forever))


def with_ports(*ports, host_network=False):
    pod = make_pod(replace(make_container("main"), ports=ports))
    return replace(pod, spec=replace(pod.spec, host_network=host_network))


def test_a_port_that_a_process_of_the_host_holds_is_noted_and_not_refused(on_bench):
    async def story(bench):
        bench.host_ports.held[80] = "nginx (pid 7)"
        ports = (ContainerPort(container_port=8080, host_port=80), ContainerPort(container_port=1, host_port=81))
        await bench.sync(with_ports(*ports))
        (recorded,) = [cause.finding for cause in bench.journal.all() if cause.finding.decision == "HostPortHeld"]
        assert recorded.message.startswith("host port 80/TCP is held by nginx (pid 7) of the host too; ")
        assert recorded.measurements == {"hostPort": 80, "protocol": "TCP", "heldBy": "nginx (pid 7)"}
        assert len(bench.calls("StartContainer")) == 1

    on_bench(story)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(with_ports(), id="no ports"),
        pytest.param(with_ports(ContainerPort(container_port=80)), id="no port of the host"),
        pytest.param(
            with_ports(ContainerPort(container_port=80, host_port=80), host_network=True), id="the host's own network"
        ),
    ],
)
def test_sockets_are_only_looked_at_for_ports_that_are_mapped(on_bench, pod):
    async def story(bench):
        await bench.sync(pod)
        assert bench.host_ports.asked == []

    on_bench(story)
