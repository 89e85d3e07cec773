"""Starting containers on the fake runtime: back-off, failures and their reasons, restart counts."""

from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from klet.api.container import EnvVar, EnvVarSource, SecretKeySelector, VolumeMount
from klet.api.security import SecurityContext
from klet.api.volume import ImageVolumeSource, Volume
from klet.cri.errors import Code
from klet.model.images import MissingImage
from klet.model.runtime import StartFailure
from klet.testing.builders import make_container, make_pod, with_resources
from klet.testing.fake_runtime import Script
from klet.testing.fake_runtime.lives import (
    always,
    crashes,
    fails_to_create,
    fails_to_start,
    in_turn,
    runs_for,
)
from klet.testing.fake_runtime.world import Features

CRASHING = Script(lives=always(runs_for(timedelta(seconds=1), exit_code=1)))


async def starts_of(bench, pod, *, until: float) -> list[int]:
    """Sync the pod as a worker does, when something may have changed or a back-off ends; the seconds of the starts."""
    while bench.clock.monotonic() < until:
        outcome = await bench.sync(pod)
        if outcome.retry_at is not None:
            await bench.clock.sleep_until(outcome.retry_at)
        while any(container.is_running for container in bench.runtime.containers()):
            await bench.sleep(1)
    return [int((call.at - bench.runtime.calls[0].at).total_seconds()) for call in bench.calls("StartContainer")]


def test_a_crashing_container_starts_ever_more_slowly(on_bench):
    async def test(bench) -> None:
        starts = await starts_of(bench, make_pod("a"), until=400)
        ends = [start + 1 for start in starts]
        waits = [start - end for start, end in zip(starts[1:], ends, strict=False)]
        assert waits == [0, 10, 20, 40, 80, 160]

    on_bench(test, CRASHING)


def test_the_back_off_says_how_long_and_until_when(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", name="web")
        await bench.sync(pod)
        await bench.sleep(1.5)
        assert (await bench.sync(pod)).errors == ()
        await bench.sleep(1.5)
        outcome = await bench.sync(pod)
        text = "back-off 10s restarting failed container=a pod=web_default(uid-1)"
        assert outcome.failures == {"a": StartFailure("CrashLoopBackOff", text)}
        assert outcome.errors == (f'failed to "StartContainer" for "a" with CrashLoopBackOff: "{text}"',)
        record = (await bench.status(pod)).newest("a")
        assert record is not None
        assert outcome.retry_at == record.finished_at + timedelta(seconds=10)
        assert (await bench.events())[-1] == (
            "BackOff",
            "Back-off restarting failed container a in pod web_default(uid-1)",
        )

    on_bench(test, CRASHING)


def test_of_several_back_offs_the_earliest_counts(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b")
        for _ in range(2):
            await bench.sync(pod)
            await bench.sleep(1)
        outcome = await bench.sync(pod)
        ends = [(await bench.status(pod)).newest(name).finished_at for name in ("a", "b")]
        assert outcome.retry_at == min(ends) + timedelta(seconds=10)
        assert set(outcome.failures) == {"a", "b"}

    on_bench(test, CRASHING)


def test_a_container_that_ran_for_long_starts_again_at_once(on_bench):
    lives = in_turn(
        *[runs_for(timedelta(seconds=1), 1)] * 3, runs_for(timedelta(seconds=601), 1), runs_for(timedelta(seconds=1), 1)
    )

    async def test(bench) -> None:
        starts = await starts_of(bench, make_pod("a"), until=700)
        assert starts[:4] == [0, 1, 12, 33]
        assert starts[4:6] == [634, 645]

    on_bench(test, Script(lives=lives))


def test_waiting_does_not_make_a_container_look_as_if_it_had_run_for_long(on_bench):
    """Waits of 300 s and runs of 310 s: together over 600 s, but no run was that long."""
    lives = in_turn(*[runs_for(timedelta(seconds=1), 1)] * 6, runs_for(timedelta(seconds=310), 1))

    async def test(bench) -> None:
        starts = await starts_of(bench, make_pod("a"), until=3000)
        assert [later - earlier for earlier, later in pairwise(starts[7:10])] == [610, 610]

    on_bench(test, Script(lives=lives))


def test_a_short_longest_back_off_still_holds_back_containers_that_run_longer_than_it(on_bench):
    async def test(bench) -> None:
        starts = await starts_of(bench, make_pod("a"), until=60)
        assert [later - earlier for earlier, later in pairwise(starts[1:4])] == [15, 15]

    on_bench(test, Script(lives=always(runs_for(timedelta(seconds=10), 1))), longest_backoff=timedelta(seconds=5))


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(with_resources(make_container("a"), limits={"cpu": "1"}), id="other resources"),
        pytest.param(make_container("a", image="klet.local/busybox:1"), id="the same again"),
    ],
)
def test_a_change_of_resources_ends_the_back_off(on_bench, changed):
    async def test(bench) -> None:
        pod = make_pod("a")
        for _ in range(2):
            await bench.sync(pod)
            await bench.sleep(1)
        assert "a" in (await bench.sync(pod)).failures
        outcome = await bench.sync(make_pod(changed))
        assert bool(outcome.failures) is (not changed.resources.limits)

    on_bench(test, CRASHING)


def test_a_forgotten_pod_starts_at_once(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        for _ in range(2):
            await bench.sync(pod)
            await bench.sleep(1)
        assert (await bench.sync(pod)).failures
        bench.backoff.forget("uid-1")
        assert not (await bench.sync(pod)).failures

    on_bench(test, CRASHING)


def test_restart_counts_go_on(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        bench.files.restart_count = 4
        await bench.sync(pod)
        await bench.sleep(1)
        await bench.sync(pod)
        configs = [call.request.config for call in bench.calls("CreateContainer")]
        assert [config.metadata.attempt for config in configs] == [4, 5]
        assert [config.log_path for config in configs] == ["a/4.log", "a/5.log"]
        assert [config.annotations["io.kubernetes.container.restartCount"] for config in configs] == ["4", "5"]

    on_bench(test, Script(lives=crashes(9)))


def test_a_container_that_an_agent_created_late_turns_no_count_back(on_bench):
    """The call of an agent that was killed goes on in the runtime, and is done after those of the next agent."""

    async def test(bench) -> None:
        pod = make_pod("a")
        bench.files.restart_count = 4
        await bench.sync(pod)
        await bench.sleep(1)
        first = bench.calls("CreateContainer")[0].request
        late = type(first).FromString(first.SerializeToString())
        late.config.metadata.attempt = 0
        late.config.annotations["io.kubernetes.container.restartCount"] = "0"
        await bench.client.create_container(late)
        await bench.sync(pod)
        attempts = [call.request.config.metadata.attempt for call in bench.calls("CreateContainer")]
        assert attempts == [4, 0, 5]

    on_bench(test, Script(lives=crashes(9)))


def test_a_started_container_is_recorded(on_bench):
    async def test(bench) -> None:
        await bench.sync(make_pod("a"))
        assert (await bench.events())[-2:] == [("Created", "Container created"), ("Started", "Container started")]
        config = bench.calls("CreateContainer")[0].request.config
        assert config.mounts[0].host_path.startswith("/hosts/10.88.")

    on_bench(test)


@pytest.mark.parametrize(
    ("life", "reason", "message"),
    [
        pytest.param(fails_to_create("no space"), "CreateContainerError", "no space", id="create"),
        pytest.param(fails_to_create("who", Code.INTERNAL), "CreateContainerError", "who", id="create, another code"),
        pytest.param(fails_to_start("no such file"), "RunContainerError", "no such file", id="start"),
    ],
)
def test_failures_of_the_runtime_are_reported_without_their_code(on_bench, life, reason, message):
    async def test(bench) -> None:
        outcome = await bench.sync(make_pod("a"))
        assert outcome.failures == {"a": StartFailure(reason, message)}
        assert outcome.errors == (f'failed to "StartContainer" for "a" with {reason}: "{message}"',)
        assert outcome.retry_at is None
        assert (await bench.events())[-1] == ("Failed", f"Error: {message}")

    on_bench(test, Script(lives=always(life)))


def test_a_missing_image_is_reported_with_its_reason(on_bench):
    async def test(bench) -> None:
        bench.images.missing = MissingImage("ErrImagePull", "no such host")
        outcome = await bench.sync(make_pod("a"))
        assert outcome.failures == {"a": StartFailure("ErrImagePull", "no such host")}
        assert ("Failed", "Error: ErrImagePull") in await bench.events()
        assert bench.calls("CreateContainer") == []

    on_bench(test)


NEEDS_SECRET = EnvVar(name="V", value_from=EnvVarSource(secret_key_ref=SecretKeySelector(key="k")))


@pytest.mark.parametrize(
    "container",
    [
        pytest.param(
            replace(make_container("a"), security_context=SecurityContext(run_as_non_root=True, run_as_user=0)),
            id="it would run as root",
        ),
        pytest.param(replace(make_container("a"), env=(NEEDS_SECRET,)), id="its environment is not there"),
    ],
)
def test_a_container_that_cannot_be_described(on_bench, container):
    async def test(bench) -> None:
        outcome = await bench.sync(make_pod(container))
        assert outcome.failures["a"].reason == "CreateContainerConfigError"
        assert bench.calls("CreateContainer") == []

    on_bench(test)


def test_files_that_cannot_be_made_fail_the_container_and_not_the_pod(on_bench):
    async def test(bench) -> None:
        bench.files.broken = True
        outcome = await bench.sync(make_pod("a"))
        text = "cannot make /pods/x: No space left on device"
        assert outcome.failures == {"a": StartFailure("CreateContainerConfigError", text)}

    on_bench(test)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(False, "", id="as runtimes have always been asked"),
        pytest.param(True, "crun", id="a runtime that keeps images for each handler"),
    ],
)
def test_images_are_those_of_the_runtime_class(on_bench, names, expected):
    async def test(bench) -> None:
        mounting = replace(make_container("a"), volume_mounts=(VolumeMount(name="models", mount_path="/models"),))
        image = Volume(name="models", image=ImageVolumeSource(reference="models:1", pull_policy="Always"))
        pod = make_pod(mounting)
        pod = replace(pod, spec=replace(pod.spec, runtime_class_name="quick", volumes=(image,)))
        bench.volumes.paths["models"] = ""
        assert not (await bench.sync(pod)).errors
        assert bench.images.handlers == [expected, expected]
        (mount,) = [each for each in bench.calls("CreateContainer")[0].request.config.mounts if each.image.image]
        assert mount.image.runtime_handler == expected

    on_bench(test, names_image_handlers=names, features=Features(runtime_handlers=("", "runc", "crun")))
