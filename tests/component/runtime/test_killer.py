"""Stopping containers and pods on the fake runtime."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.handlers import Probe
from klet.cri.errors import Code, CriError
from klet.journal.records import CauseQuery
from klet.model.reasons import Reason
from klet.runtime.actions import KillReason
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import ContainerLife, Fault, OnTerm, Script
from klet.testing.fake_runtime.faults import Fail
from klet.testing.fake_runtime.lives import IGNORES_TERM, always, by_name

SLOW = Script(lives=always(ContainerLife(on_term=OnTerm(after=timedelta(seconds=3)))))


@pytest.mark.parametrize(
    ("deletion", "grace", "reason", "expected"),
    [
        pytest.param(None, None, KillReason.UNKNOWN, 30, id="the pod's own grace"),
        pytest.param(None, 1, KillReason.UNKNOWN, 2, id="never less than two seconds"),
        pytest.param(None, 7, KillReason.UNKNOWN, 7, id="an override"),
        pytest.param(10, None, KillReason.LIVENESS_PROBE, 10, id="a deletion's grace"),
        pytest.param(None, None, KillReason.LIVENESS_PROBE, 5, id="the probe's grace"),
    ],
)
def test_the_runtime_is_given_the_grace(on_bench, deletion, grace, reason, expected):
    async def test(bench) -> None:
        container = replace(make_container("a"), liveness_probe=Probe(termination_grace_period_seconds=5))
        pod = make_pod(container)
        await bench.sync(pod)
        pod = replace(pod, metadata=replace(pod.metadata, deletion_grace_period_seconds=deletion))
        record = (await bench.status(pod)).containers[0]
        await bench.killer.kill_container(pod, record, reason=reason, grace=grace, parent=None)
        assert [call.request.timeout for call in bench.calls("StopContainer")] == [expected]
        assert ("Killing", "Stopping container a") in await bench.events()
        assert not (await bench.status(pod)).running()

    on_bench(test)


@pytest.mark.parametrize(
    ("reason", "probe"),
    [
        pytest.param(KillReason.LIVENESS_PROBE, "liveness", id="a liveness probe"),
        pytest.param(KillReason.STARTUP_PROBE, "startup", id="a startup probe"),
        pytest.param(KillReason.UNKNOWN, None, id="no probe"),
    ],
)
def test_the_record_of_a_kill_names_the_probe_that_is_behind_it(on_bench, reason, probe):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        record = (await bench.status(pod)).containers[0]
        await bench.killer.kill_container(pod, record, message="a probe, they say", reason=reason, parent=None)
        records = await bench.journal.find(CauseQuery(container="a"))
        (kill,) = (cause.finding for cause in records if cause.finding.decision == Reason.KILLING)
        assert kill.measurements.get("probe") == probe

    on_bench(test)


def test_a_message_says_why(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        record = (await bench.status(pod)).containers[0]
        await bench.killer.kill_container(pod, record, message="Container a failed liveness probe", parent=None)
        assert ("Killing", "Container a failed liveness probe") in await bench.events()

    on_bench(test)


def test_a_container_that_ignores_the_signal_is_killed_when_its_grace_is_over(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), grace=5, parent=None)
        assert bench.clock.monotonic() == 5
        record = (await bench.status(pod)).newest("a")
        assert record is not None
        assert record.exit_code == 137

    on_bench(test, Script(lives=always(IGNORES_TERM)))


def test_containers_stop_at_the_same_time_and_the_sandbox_after_them(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b", "c")
        await bench.sync(pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), parent=None)
        assert bench.clock.monotonic() == 3
        assert bench.called()[-4:] == ["StopContainer"] * 3 + ["StopPodSandbox"]
        assert not (await bench.status(pod)).is_live

    on_bench(test, SLOW)


def test_every_sandbox_is_stopped_also_dead_ones(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        bench.runtime.kill_sandbox(bench.runtime.sandboxes()[0].id)
        await bench.sync(pod)
        status = await bench.status(pod)
        assert len(status.sandboxes) == 2
        before = len(bench.calls("StopPodSandbox"))
        await bench.killer.kill_pod(pod, status, parent=None)
        assert len(bench.calls("StopPodSandbox")) == before + 2

    on_bench(test)


def test_what_is_gone_already_counts_as_stopped(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        status = await bench.status(pod)
        bench.runtime.faults.add(Fault("StopContainer", Fail(Code.NOT_FOUND, "no such container")))
        bench.runtime.faults.add(Fault("StopPodSandbox", Fail(Code.NOT_FOUND, "no such sandbox")))
        await bench.killer.kill_pod(pod, status, parent=None)

    on_bench(test)


def test_one_failure_does_not_spare_the_others_and_is_raised_at_the_end(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b")
        await bench.sync(pod)
        status = await bench.status(pod)
        victim = status.containers[0].id
        bench.runtime.faults.add(
            Fault("StopContainer", Fail(Code.UNKNOWN, "stuck"), matches=lambda request: request.container_id == victim)
        )
        with pytest.raises(CriError, match="stuck"):
            await bench.killer.kill_pod(pod, status, parent=None)
        after = await bench.status(pod)
        assert not any(sandbox.ready for sandbox in after.sandboxes)
        assert not after.running()

    on_bench(test)


def test_a_removed_pod_leaves_nothing_in_the_runtime(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b")
        await bench.sync(pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), parent=None)
        status = await bench.status(pod)
        await bench.killer.remove_pod(status)
        assert bench.runtime.sandboxes() == bench.runtime.containers() == ()
        await bench.killer.remove_pod(status)

    on_bench(test)


def test_a_sandbox_that_died_by_itself_gives_its_network_back_before_it_is_removed(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        bench.runtime.kill_sandbox(bench.runtime.sandboxes()[0].id)
        await bench.sleep(1)
        await bench.killer.remove_pod(await bench.status(pod))
        assert bench.called()[-2:] == ["StopPodSandbox", "RemovePodSandbox"]
        assert bench.runtime.sandboxes() == ()

    on_bench(test)


def test_a_container_that_the_spec_no_longer_has_is_stopped_too(on_bench):
    async def test(bench) -> None:
        old = make_pod("a", "gone")
        await bench.sync(old)
        await bench.killer.kill_pod(make_pod("a"), await bench.status(old), parent=None)
        assert not (await bench.status(old)).is_live

    on_bench(test, Script(lives=by_name({})))
