"""Hooks of containers: how they are carried out, what they cost of the grace, and what their failure does."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerPort
from klet.api.handlers import (
    ExecAction,
    HTTPGetAction,
    HTTPHeader,
    Lifecycle,
    LifecycleHandler,
    Probe,
    SleepAction,
    TCPSocketAction,
)
from klet.cri.errors import Code
from klet.host.http_client import BodyError, HttpError, PlainHttpError
from klet.model.foreign_text import LONGEST_OUTPUT
from klet.model.runtime import ContainerId
from klet.runtime.actions import KillReason
from klet.runtime.hooks import HookError, HookTarget
from klet.runtime.labels import restore_pod
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import ExecResult, Script
from klet.testing.fake_runtime.calls import RpcFailure
from klet.testing.fake_runtime.lives import IGNORES_TERM, ContainerLife, OnTerm, always, by_name
from klet.testing.loop import EPOCH

HANGS = LifecycleHandler(sleep=SleepAction(seconds=100_000))
RUN = LifecycleHandler(exec=ExecAction(command=("bye", "$(NAME)")))


def hooked(name: str = "a", *, pre_stop=None, post_start=None, **fields):
    return replace(make_container(name), lifecycle=Lifecycle(pre_stop=pre_stop, post_start=post_start), **fields)


def execs(**result) -> Script:
    return Script(execs=lambda _config, _command: ExecResult(**result))


def sleeps(seconds: int) -> LifecycleHandler:
    return LifecycleHandler(sleep=SleepAction(seconds=seconds))


async def failure_of(bench, handler: LifecycleHandler, container=None) -> str:
    """Start a pod and run a hook in it; what it says if it fails."""
    container = container or make_container("a")
    pod = make_pod(container, name="web", uid="u-1")
    await bench.sync(pod)
    target = HookTarget(pod=pod, container=container, id=(await bench.status(pod)).containers[0].id)
    try:
        await bench.hooks.run(handler, target, parent=None)
    except HookError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param({}, "", id="success"),
        pytest.param(
            {"exit_code": 3, "stdout": b"out\n", "stderr": b'no "way"'},
            'Exec lifecycle hook ([bye $(NAME)]) for Container "a" in Pod "web_default(u-1)" failed - error: command'
            ' \'bye $(NAME)\' exited with 3: no "way", message: "out\\nno \\"way\\""',
            id="another exit code than 0",
        ),
        pytest.param(
            {"failure": RpcFailure(Code.UNKNOWN, "not found")},
            'Exec lifecycle hook ([bye $(NAME)]) for Container "a" in Pod "web_default(u-1)" failed - error: rpc error:'
            ' code = Unknown desc = failed to exec in container: failed to start exec "<id>": not found, message: ""',
            id="no such command",
        ),
    ],
)
def test_a_command(on_bench, result, expected):
    async def test(bench) -> None:
        said = await failure_of(bench, RUN)
        [call] = bench.calls("ExecSync")
        assert (list(call.request.cmd), call.request.timeout) == (["bye", "$(NAME)"], 0)
        if "<id>" in expected:
            head, tail = expected.split("<id>")
            assert said.startswith(head)
            assert said.endswith(tail)
        else:
            assert said == expected

    on_bench(test, execs(**result))


@pytest.mark.parametrize(
    ("result", "command"),
    [
        pytest.param({"exit_code": 3, "stdout": b"\x01" * 3_000_000}, ("bye",), id="much output"),
        pytest.param({"exit_code": 3, "stderr": b"\xff" * 3_000_000}, ("bye",), id="many complaints"),
        pytest.param(
            {"exit_code": 3, "stdout": b"\n" * 2_000_000, "stderr": b'"' * 2_000_000}, ("bye",), id="both, to be quoted"
        ),
        pytest.param({"exit_code": 3}, ("sh", "-c", "x" * 100_000), id="a long command"),
        pytest.param({"failure": RpcFailure(Code.UNKNOWN, "y" * 100_000)}, ("bye",), id="a long error of the runtime"),
    ],
)
def test_what_a_command_says_is_cut(on_bench, result, command):
    async def test(bench) -> None:
        said = await failure_of(bench, LifecycleHandler(exec=ExecAction(command=command)))
        assert said.startswith(f"Exec lifecycle hook ([{command[0]}")
        assert len(said) <= 8 * LONGEST_OUTPUT

    on_bench(test, execs(**result))


REFUSED = HttpError('Get "http://10.0.0.1:80/": dial tcp 10.0.0.1:80: connect: connection refused')


@pytest.mark.parametrize(
    ("action", "failures", "urls", "expected"),
    [
        pytest.param(HTTPGetAction(port=80), [], ["http://<ip>:80"], "", id="any answer is a success"),
        pytest.param(
            HTTPGetAction(port="web", path="bye?x=1", scheme="HTTPS", host="other"),
            [],
            ["https://other:8080/bye?x=1"],
            "",
            id="a named port, another host, a path without a slash",
        ),
        pytest.param(
            HTTPGetAction(port=80), [BodyError("EOF")], ["http://<ip>:80"], "", id="an answer that breaks off"
        ),
        pytest.param(
            HTTPGetAction(port=80, path="/x"), [REFUSED], ["http://<ip>:80/x"], f"error: {REFUSED}", id="no answer"
        ),
        pytest.param(
            HTTPGetAction(port="nix", path="/x"),
            [],
            [],
            'error: strconv.Atoi: parsing "nix": invalid syntax',
            id="a port that the container does not have",
        ),
        pytest.param(
            HTTPGetAction(port=443, scheme="HTTPS"),
            [PlainHttpError("plain")],
            ["https://<ip>:443", "http://<ip>:443"],
            "",
            id="plain HTTP in answer to TLS is asked again in plain HTTP",
        ),
        pytest.param(
            HTTPGetAction(port=443, scheme="HTTPS"),
            [PlainHttpError("plain"), REFUSED],
            ["https://<ip>:443", "http://<ip>:443"],
            "error: plain",
            id="if that fails too the first failure is reported",
        ),
    ],
)
def test_a_request(on_bench, action, failures, urls, expected):
    async def test(bench) -> None:
        bench.http.failures = list(failures)
        container = replace(make_container("a"), ports=(ContainerPort(name="web", container_port=8080),))
        headers = (HTTPHeader(name="authorization", value="secret"), HTTPHeader(name="X-A", value="b"))
        said = await failure_of(bench, LifecycleHandler(http_get=replace(action, http_headers=headers)), container)
        [sandbox] = bench.runtime.sandboxes()
        assert [request.address.url for request in bench.http.requests] == [
            url.replace("<ip>", sandbox.ips[0]) for url in urls
        ]
        for request in bench.http.requests:
            assert ("User-Agent", "kube-lifecycle/1.35") in request.headers
            assert ("X-A", "b") in request.headers
        for plain in bench.http.requests[1:]:
            assert "Authorization" not in dict(plain.headers)
        if expected:
            where = f'HTTP lifecycle hook ({action.path}) for Container "a" in Pod "web_default(u-1)" failed'
            assert said == f"{where} - {expected}"
        else:
            assert said == ""
        fallen_back = len(urls) > 1 and not expected
        text = f"request to HTTPS lifecycle hook {sandbox.ips[0]}:443 got HTTP response, retry with HTTP succeeded"
        assert (("LifecycleHTTPFallback", text) in await bench.events()) is fallen_back

    on_bench(test)


def test_a_pod_without_an_address_cannot_be_asked(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", name="web", uid="u-1")
        target = HookTarget(pod=pod, container=pod.spec.containers[0], id=ContainerId("x"))
        with pytest.raises(HookError, match="failed to find networking container: "):
            await bench.hooks.run(LifecycleHandler(http_get=HTTPGetAction(port=80)), target, parent=None)

    on_bench(test)


@pytest.mark.parametrize("seconds", [0, 5])
def test_a_sleep_takes_its_time(on_bench, seconds):
    async def test(bench) -> None:
        assert await failure_of(bench, sleeps(seconds)) == ""
        assert bench.clock.monotonic() == seconds

    on_bench(test)


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        pytest.param(LifecycleHandler(tcp_socket=TCPSocketAction(port=80)), "tcpSocket", id="a TCP socket"),
        pytest.param(LifecycleHandler(), "none", id="nothing"),
    ],
)
def test_what_cannot_be_run_fails(on_bench, handler, kind):
    async def test(bench) -> None:
        assert await failure_of(bench, handler) == f"Cannot run handler: invalid handler: {kind}"

    on_bench(test)


TAKES_12_7 = execs(takes=timedelta(seconds=12.7))


@pytest.mark.parametrize(
    ("hook", "spec_grace", "override", "reason", "script", "timeout", "at"),
    [
        pytest.param(RUN, 30, None, KillReason.UNKNOWN, TAKES_12_7, 18, 12.7, id="what a hook takes, in whole seconds"),
        pytest.param(HANGS, 30, None, KillReason.UNKNOWN, None, 2, 30, id="a hook that hangs takes it all"),
        pytest.param(HANGS, 30, 1, KillReason.UNKNOWN, None, 2, 1, id="an override of one second"),
        pytest.param(HANGS, 30, 0, KillReason.UNKNOWN, None, 2, 0, id="an override of zero leaves the hook out"),
        pytest.param(HANGS, 30, None, KillReason.LIVENESS_PROBE, None, 2, 5, id="the grace of a probe"),
        pytest.param(None, 30, None, KillReason.LIVENESS_PROBE, None, 5, 0, id="the grace of a probe, no hook"),
        pytest.param(None, 0, None, KillReason.UNKNOWN, None, 2, 0, id="a pod that asks for zero"),
        pytest.param(HANGS, 0, None, KillReason.UNKNOWN, None, 2, 0, id="a pod that asks for zero, with a hook"),
        pytest.param(sleeps(7), 30, 20, KillReason.UNKNOWN, None, 13, 7, id="a longer override"),
    ],
)
def test_what_is_left_of_the_grace_after_the_hook(on_bench, hook, spec_grace, override, reason, script, timeout, at):
    async def test(bench) -> None:
        probe = Probe(termination_grace_period_seconds=5)
        pod = make_pod(hooked(pre_stop=hook, liveness_probe=probe))
        pod = replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=spec_grace))
        await bench.sync(pod)
        record = (await bench.status(pod)).containers[0]
        await bench.killer.kill_container(pod, record, reason=reason, grace=override, parent=None)
        [call] = bench.calls("StopContainer")
        assert call.request.timeout == timeout
        assert bench.clock.monotonic() == pytest.approx(at)
        decisions = [decision for decision, _ in await bench.events()]
        assert ("PreStopHookUnfinished" in decisions) is (hook is HANGS and at > 0)

    on_bench(test, script)


def test_a_failing_hook_before_the_stop_is_reported_and_the_container_stopped(on_bench):
    async def test(bench) -> None:
        pod = make_pod(hooked(pre_stop=RUN))
        await bench.sync(pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), parent=None)
        events = await bench.events()
        assert [text for decision, text in events if decision == "FailedPreStopHook"] == ["PreStopHook failed"]
        assert not (await bench.status(pod)).is_live

    on_bench(test, execs(exit_code=1))


def test_a_hook_that_outlasts_the_container_leaves_nothing_behind(on_bench):
    async def test(bench) -> None:
        pod = make_pod(hooked(pre_stop=RUN))
        await bench.sync(pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), grace=3, parent=None)
        assert bench.clock.monotonic() == 5
        assert not (await bench.status(pod)).is_live

    life = always(IGNORES_TERM)
    on_bench(test, Script(lives=life, execs=lambda _config, _command: ExecResult(takes=timedelta(days=1))))


def test_a_container_whose_pod_is_gone_is_stopped_by_what_it_remembers(on_bench):
    async def test(bench) -> None:
        pod = make_pod(hooked(pre_stop=sleeps(4), ports=(ContainerPort(container_port=80),)))
        await bench.sync(pod)
        record = (await bench.status(pod)).containers[0]
        restored = restore_pod(record, uid=pod.metadata.uid, name="pod", namespace="default")
        assert restored.spec.containers[0].ports == pod.spec.containers[0].ports
        await bench.killer.kill_container(restored, record, parent=None)
        assert bench.calls("StopContainer")[0].request.timeout == 26

    on_bench(test)


def test_a_container_that_the_spec_no_longer_has_still_gets_its_hook(on_bench):
    async def test(bench) -> None:
        old = make_pod("a", hooked("gone", pre_stop=sleeps(4)))
        await bench.sync(old)
        await bench.killer.kill_pod(make_pod("a"), await bench.status(old), parent=None)
        assert sorted(call.request.timeout for call in bench.calls("StopContainer")) == [26, 30]

    on_bench(test)


def slow(seconds: float) -> ContainerLife:
    return ContainerLife(on_term=OnTerm(after=timedelta(seconds=seconds)))


def sidecar(name: str, **fields):
    return replace(make_container(name, restart_policy="Always"), **fields)


async def started(bench, pod) -> None:
    """Sidecars come up one after the other."""
    for _ in range(len(pod.spec.init_containers) + 1):
        await bench.sync(pod)
    assert len((await bench.status(pod)).running()) == len(pod.spec.init_containers) + len(pod.spec.containers)


@pytest.mark.parametrize(
    ("grace", "expected"),
    [
        pytest.param(30, {"m": (0, 30), "s3": (1, 29), "s2": (2, 28), "s1": (3, 27)}, id="enough time for all"),
        pytest.param(2, {"m": (0, 2), "s3": (1, 2), "s2": (2, 2), "s1": (2, 2)}, id="the wait is cut by the grace"),
        pytest.param(0, {"m": (0, 2), "s3": (0, 2), "s2": (0, 2), "s1": (0, 2)}, id="without grace nobody waits"),
    ],
)
def test_sidecars_end_after_the_others_in_reverse_order(on_bench, grace, expected):
    async def test(bench) -> None:
        pod = make_pod("m", init=(sidecar("s1"), sidecar("s2"), sidecar("s3")))
        await started(bench, pod)
        begin = bench.clock.monotonic()
        status = await bench.status(pod)
        names = {record.id: record.name for record in status.containers}
        await bench.killer.kill_pod(pod, status, grace=grace, parent=None)
        stops = {names[call.request.container_id]: call for call in bench.calls("StopContainer")}
        found = {
            name: (int((call.at - EPOCH).total_seconds() - begin), call.request.timeout) for name, call in stops.items()
        }
        assert found == expected

    on_bench(test, Script(lives=always(slow(1.01))))


def test_the_time_a_sidecar_waits_counts_in_whole_seconds(on_bench):
    async def test(bench) -> None:
        pod = make_pod("m", init=(sidecar("s"),))
        await started(bench, pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), grace=30, parent=None)
        assert [call.request.timeout for call in bench.calls("StopContainer")] == [30, 22]

    on_bench(test, Script(lives=by_name({"m": always(slow(8.9))})))


def test_hooks_before_the_stop_all_run_at_once_and_before_the_wait(on_bench):
    async def test(bench) -> None:
        lifecycle = Lifecycle(pre_stop=sleeps(5))
        pod = make_pod(hooked("m", pre_stop=sleeps(5)), init=(sidecar("s", lifecycle=lifecycle),))
        await started(bench, pod)
        await bench.killer.kill_pod(pod, await bench.status(pod), grace=30, parent=None)
        assert [call.request.timeout for call in bench.calls("StopContainer")] == [25, 22]
        assert bench.clock.monotonic() == pytest.approx(8.5)

    on_bench(test, Script(lives=by_name({"m": always(slow(3.5))})))


def test_a_container_starts_its_successor_only_after_its_hook(on_bench):
    async def test(bench) -> None:
        pod = make_pod(hooked("a", post_start=sleeps(5)), "b")
        outcome = await bench.sync(pod)
        assert not outcome.errors
        starts = [call.at for call in bench.calls("StartContainer")]
        assert starts[1] - starts[0] == timedelta(seconds=5)
        decisions = [decision for decision, _ in await bench.events()]
        assert decisions.index("PostStartHook") < len(decisions) - 1 - decisions[::-1].index("Started")

    on_bench(test)


def test_a_failing_hook_after_the_start_ends_the_container(on_bench):
    async def test(bench) -> None:
        pod = make_pod(hooked("a", post_start=RUN, pre_stop=sleeps(2)), "b")
        outcome = await bench.sync(pod)
        assert outcome.failures["a"].reason == "PostStartHookError"
        assert outcome.failures["a"].message.startswith("Exec lifecycle hook ([bye $(NAME)]) for Container")
        events = await bench.events()
        assert ("FailedPostStartHook", "PostStartHook failed") in events
        assert ("Killing", "FailedPostStartHook") in events
        assert not [text for decision, text in events if decision == "Failed"]
        assert [call.request.timeout for call in bench.calls("StopContainer")] == [28]
        status = await bench.status(pod)
        assert [record.name for record in status.running()] == ["b"]

    on_bench(test, execs(exit_code=1))


def test_the_status_of_a_container_whose_hook_says_too_much_is_bounded(on_bench):
    async def test(bench) -> None:
        outcome = await bench.sync(make_pod(hooked("a", post_start=RUN)))
        assert len(outcome.failures["a"].message.encode()) <= LONGEST_OUTPUT
        assert all(len(error.encode()) <= 2 * LONGEST_OUTPUT for error in outcome.errors)

    on_bench(test, execs(exit_code=1, stdout=b"\x01" * 3_000_000, stderr=b"\xff" * 3_000_000))


def test_hooks_that_hang_after_the_start_keep_no_other_pod_from_starting(on_bench):
    async def test(bench) -> None:
        async with asyncio.TaskGroup() as group:
            stuck = [
                group.create_task(
                    bench.sync(make_pod(hooked("a", post_start=HANGS), uid=f"u-{number}", name=f"p{number}"))
                )
                for number in range(3)
            ]
            await bench.sleep(1)
            outcome = await bench.sync(make_pod("a", uid="other", name="other"))
            assert not outcome.errors
            assert bench.clock.monotonic() == 1
            for task in stuck:
                task.cancel()

    on_bench(test)
