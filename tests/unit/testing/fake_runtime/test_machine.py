from datetime import UTC, datetime, timedelta

import pytest

from klet.cri.errors import Code
from klet.testing.fake_runtime import (
    ANY,
    DelayCall,
    DropEvent,
    EventFault,
    ExecResult,
    Fail,
    FakeImage,
    FakeRuntime,
    Fault,
    Features,
    HalfDone,
    Hang,
    Late,
    MemorySink,
    OnTerm,
    Repeat,
    RpcFailure,
    Script,
    Twice,
    registry_of,
)
from klet.testing.fake_runtime import lives as life
from klet.wire import cri_v1_pb2 as pb

START = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BUSYBOX = "klet.local/busybox:1"
IMAGE = FakeImage(BUSYBOX)
CONTAINERD = Features()


class Driver:
    """Calls the machine at a time that the test moves."""

    def __init__(self, lives=life.lives_forever, *, features=CONTAINERD, images=(IMAGE,), **script):
        self.sink = MemorySink()
        self.now = START
        self.runtime = FakeRuntime(
            start=START,
            script=Script(lives=lives, **script),
            features=features,
            sink=self.sink,
            images=images,
        )

    def begin(self, rpc, request):
        return self.runtime.call(rpc, request, now=self.now)

    def call(self, rpc, request):
        return self.begin(rpc, request).result()

    def after(self, duration):
        self.now += duration
        return self.runtime.advance(self.now)

    def pod(self, name="p", attempt=0):
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name=name, namespace="d", uid=name, attempt=attempt),
            log_directory=f"/logs/{name}",
        )
        self.config = config
        return self.call("RunPodSandbox", pb.RunPodSandboxRequest(config=config)).pod_sandbox_id

    def create_request(self, sandbox, name="main", attempt=0):
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name, attempt=attempt),
            image=pb.ImageSpec(image=BUSYBOX),
            log_path=f"{name}/{attempt}.log",
        )
        config.mounts.add(container_path="/dev/termination-log", host_path=f"/term/{name}")
        return pb.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=self.config)

    def create(self, sandbox, name="main", attempt=0):
        return self.call("CreateContainer", self.create_request(sandbox, name, attempt)).container_id

    def run(self, name="main"):
        container = self.create(self.pod(), name)
        self.start(container)
        return container

    def start(self, container):
        self.call("StartContainer", pb.StartContainerRequest(container_id=container))

    def status(self, container):
        return self.call("ContainerStatus", pb.ContainerStatusRequest(container_id=container)).status

    def stop(self, container, grace):
        return self.begin("StopContainer", pb.StopContainerRequest(container_id=container, timeout=grace))

    def topics(self):
        return [event.topic for event in self.runtime.events if event.container_id and "image" not in event.topic]


def test_a_life_runs_its_course():
    script = life.runs_for(3 * SECOND, 7).saying("one", "two", every=SECOND).leaving("why")
    driver = Driver(life.always(script))
    container = driver.run()
    assert driver.runtime.next_due() == START + SECOND
    driver.after(2 * SECOND)
    assert driver.status(container).state == pb.CONTAINER_RUNNING
    assert driver.runtime.next_due() == START + 3 * SECOND
    events = driver.after(5 * SECOND)
    assert [event.topic for event in events] == ["/tasks/exit", "/tasks/delete"]
    status = driver.status(container)
    assert (status.exit_code, status.reason) == (7, "Error")
    assert status.finished_at // 1_000_000_000 == (START + 3 * SECOND).timestamp()
    assert [line.split()[-1] for line in driver.sink.read("/logs/p/main/0.log").decode().splitlines()] == ["one", "two"]
    assert driver.sink.read("/term/main") == b"why"
    assert driver.runtime.next_due() is None


def test_failures_to_create_and_start_come_from_the_life():
    driver = Driver(
        life.by_name({"a": life.always(life.fails_to_create("no")), "b": life.always(life.fails_to_start("not"))})
    )
    sandbox = driver.pod()
    with pytest.raises(RpcFailure, match=r"Unknown: no$"):
        driver.create(sandbox, "a")
    container = driver.create(sandbox, "b")
    with pytest.raises(RpcFailure, match=r"Unknown: not$"):
        driver.start(container)
    assert driver.status(container).reason == "StartError"


@pytest.mark.parametrize(
    ("script", "grace", "ends_after", "code"),
    [
        pytest.param(life.FOREVER, 30, 0, 143, id="dies of the signal"),
        pytest.param(life.ContainerLife(on_term=OnTerm(0, 5 * SECOND)), 30, 5, 0, id="takes its time"),
        pytest.param(life.ContainerLife(on_term=OnTerm(0, 5 * SECOND)), 3, 3, 137, id="takes too much time"),
        pytest.param(life.IGNORES_TERM, 30, 30, 137, id="ignores the signal"),
        pytest.param(life.runs_for(2 * SECOND, 4), 0, 0, 137, id="no grace"),
        pytest.param(
            life.ContainerLife(lasts=2 * SECOND, exit_code=4, on_term=None), 30, 2, 4, id="ends by itself meanwhile"
        ),
    ],
)
def test_stopping(script, grace, ends_after, code):
    driver = Driver(life.always(script))
    container = driver.run()
    stop = driver.stop(container, grace)
    if ends_after:
        driver.after(ends_after * SECOND - timedelta(microseconds=1))
        assert not stop.is_done
        driver.after(timedelta(microseconds=1))
    assert stop.is_done
    status = driver.status(container)
    assert (status.state, status.exit_code) == (pb.CONTAINER_EXITED, code)
    assert status.finished_at - status.started_at == pytest.approx(ends_after * 1e9, abs=100)


def test_a_stop_that_is_given_up_leaves_the_container_with_its_signal():
    driver = Driver(life.always(life.ContainerLife(on_term=OnTerm(0, 5 * SECOND))))
    container = driver.run()
    stop = driver.stop(container, 30)
    driver.runtime.give_up(stop)
    assert stop.failure.code is Code.CANCELLED
    driver.after(5 * SECOND)
    assert driver.status(container).exit_code == 0


def test_the_view_of_the_cri_may_lag_the_event():
    driver = Driver(life.always(life.runs_for(SECOND)), features=Features(view_lag=timedelta(milliseconds=5)))
    container = driver.run()
    driver.after(SECOND)
    assert driver.topics()[-1] == "/tasks/exit"
    assert driver.status(container).state == pb.CONTAINER_RUNNING
    driver.after(timedelta(milliseconds=5))
    assert driver.topics()[-1] == "/tasks/delete"
    status = driver.status(container)
    assert status.state == pb.CONTAINER_EXITED
    assert status.finished_at < (START + SECOND).timestamp() * 1e9 + 1000


def test_the_news_of_the_oom_killer_may_come_after_the_exit():
    driver = Driver(life.always(life.oom_killed_after(SECOND)), features=Features(oom_lag=timedelta(milliseconds=5)))
    container = driver.run()
    driver.after(SECOND)
    assert driver.status(container).reason == "Error"
    driver.after(timedelta(milliseconds=5))
    assert driver.status(container).reason == "OOMKilled"
    assert driver.topics()[-3:] == ["/tasks/exit", "/tasks/delete", "/tasks/oom"]


def test_removing_waits_for_the_lagging_view():
    driver = Driver(features=Features(view_lag=timedelta(milliseconds=5)))
    container = driver.run()
    sandbox = driver.runtime.sandboxes()[0].id
    remove = driver.begin("RemoveContainer", pb.RemoveContainerRequest(container_id=container))
    remove_pod = driver.begin("RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox))
    assert not remove.is_done
    assert not remove_pod.is_done
    driver.after(timedelta(milliseconds=5))
    assert remove.is_done
    assert remove_pod.is_done
    assert (driver.runtime.containers(), driver.runtime.sandboxes()) == ((), ())


class TestFaults:
    def test_an_error_has_no_effect(self):
        driver = Driver()
        driver.runtime.faults.add(Fault("RunPodSandbox", Fail(Code.RESOURCE_EXHAUSTED, "too many")))
        with pytest.raises(RpcFailure) as caught:
            driver.pod()
        assert (caught.value.code, caught.value.message) == (Code.RESOURCE_EXHAUSTED, "too many")
        assert driver.runtime.sandboxes() == ()
        driver.pod()

    def test_half_done_has_its_effect_and_fails(self):
        driver = Driver()
        driver.runtime.faults.add(Fault("RunPodSandbox", HalfDone()))
        with pytest.raises(RpcFailure) as caught:
            driver.pod()
        assert caught.value.code is Code.UNAVAILABLE
        assert len(driver.runtime.sandboxes()) == 1

    @pytest.mark.parametrize(("after_effect", "during"), [(False, 0), (True, 1)])
    def test_a_delay_is_before_or_after_the_effect(self, after_effect, during):
        driver = Driver()
        driver.runtime.faults.add(Fault("RunPodSandbox", DelayCall(2 * SECOND, after_effect=after_effect)))
        call = driver.begin("RunPodSandbox", sandbox_request())
        assert not call.is_done
        with pytest.raises(RuntimeError, match="has not ended yet"):
            call.result()
        assert len(driver.runtime.sandboxes()) == during
        driver.after(2 * SECOND)
        assert call.result().pod_sandbox_id == driver.runtime.sandboxes()[0].id

    @pytest.mark.parametrize(("after_effect", "during"), [(False, 0), (True, 1)])
    def test_a_hanging_call_waits_for_its_release(self, after_effect, during):
        driver = Driver()
        fault = driver.runtime.faults.add(Fault("RunPodSandbox", Hang(after_effect=after_effect)))
        call = driver.begin("RunPodSandbox", sandbox_request())
        driver.after(timedelta(days=1))
        assert not call.is_done
        assert len(driver.runtime.sandboxes()) == during
        fault.release()
        assert call.is_done
        assert len(driver.runtime.sandboxes()) == 1

    def test_clearing_releases_what_hangs(self):
        driver = Driver()
        driver.runtime.faults.add(Fault(ANY, Hang(), count=None))
        call = driver.begin("Version", pb.VersionRequest())
        driver.runtime.faults.clear()
        assert call.is_done
        driver.call("Version", pb.VersionRequest())

    def test_twice_applies_twice_and_answers_once(self):
        driver = Driver()
        sandbox = driver.pod()
        driver.runtime.faults.add(Fault("CreateContainer", Twice()))
        container = driver.create(sandbox)
        assert [each.id for each in driver.runtime.containers()] == [container]
        driver.runtime.faults.add(Fault("StartContainer", Twice()))
        driver.start(container)
        assert driver.status(container).state == pb.CONTAINER_RUNNING

    def test_a_fault_is_for_matching_requests_and_counted(self):
        driver = Driver()
        fault = driver.runtime.faults.add(
            Fault("RunPodSandbox", Fail(), matches=lambda request: request.config.metadata.name == "bad", count=2)
        )
        driver.pod("good")
        for _ in range(2):
            with pytest.raises(RpcFailure):
                driver.pod("bad")
        driver.pod("bad")
        assert fault.hits == 2

    def test_events_get_lost_late_or_doubled(self):
        driver = Driver(life.always(life.runs_for(SECOND)))
        faults = driver.runtime.faults
        faults.add_to_events(EventFault("/containers/create", DropEvent()))
        faults.add_to_events(EventFault("/tasks/start", Repeat(), matches=lambda event: event.container_id != "x"))
        faults.add_to_events(EventFault("/tasks/exit", Late(3 * SECOND)))
        driver.pod()
        assert driver.topics() == ["/containers/update", "/tasks/create", "/tasks/start", "/tasks/start"]
        driver = Driver(life.always(life.runs_for(SECOND)))
        driver.runtime.faults.add_to_events(EventFault("/tasks/exit", Late(3 * SECOND)))
        driver.run()
        assert [event.topic for event in driver.after(SECOND)] == ["/tasks/delete"]
        assert [event.topic for event in driver.after(3 * SECOND)] == ["/tasks/exit"]


def sandbox_request():
    metadata = pb.PodSandboxMetadata(name="p", namespace="d", uid="u")
    return pb.RunPodSandboxRequest(config=pb.PodSandboxConfig(metadata=metadata))


class TestImages:
    def pull(self, driver, name):
        return driver.begin("PullImage", pb.PullImageRequest(image=pb.ImageSpec(image=name)))

    def test_a_pull_takes_its_time_and_gives_the_id(self):
        image = FakeImage("busybox:1", pull_time=10 * SECOND)
        driver = Driver(images=(), registry=registry_of(image))
        call = self.pull(driver, "busybox:1")
        driver.after(9 * SECOND)
        assert not call.is_done
        driver.after(SECOND)
        assert call.result().image_ref == image.image_id
        status = driver.call("ImageStatus", pb.ImageStatusRequest(image=pb.ImageSpec(image="busybox:1"), verbose=True))
        assert list(status.image.repo_digests) == [f"docker.io/library/busybox@{image.manifest_digest}"]

    def test_a_pull_may_fail(self):
        failure = RpcFailure(Code.UNKNOWN, "no space left on device")
        driver = Driver(images=(), registry=registry_of(FakeImage("a:1", pull_failure=failure)))
        with pytest.raises(RpcFailure, match="no space left"):
            self.pull(driver, "a:1").result()

    def test_an_image_that_the_registry_does_not_have_is_not_found(self):
        with pytest.raises(RpcFailure) as caught:
            self.pull(Driver(), "nope").result()
        assert caught.value.code is Code.NOT_FOUND
        assert caught.value.message == (
            'failed to pull and unpack image "docker.io/library/nope:latest": failed to resolve reference'
            ' "docker.io/library/nope:latest": docker.io/library/nope:latest: not found'
        )


class TestControls:
    def test_a_container_ends_when_the_test_says(self):
        driver = Driver()
        container = driver.run()
        driver.runtime.write_log(container, "goodbye", "stderr")
        driver.runtime.end_container(container, 9, oom=True)
        status = driver.status(container)
        assert (status.exit_code, status.reason) == (9, "OOMKilled")
        assert driver.sink.read("/logs/p/main/0.log").endswith(b" stderr F goodbye\n")

    def test_conditions_can_be_changed(self):
        driver = Driver()
        driver.runtime.set_condition("NetworkReady", status=False, reason="NetworkPluginNotReady", message="no CNI")
        conditions = driver.call("Status", pb.StatusRequest()).status.conditions
        assert [(each.type, each.status, each.reason) for each in conditions] == [
            ("RuntimeReady", True, ""),
            ("NetworkReady", False, "NetworkPluginNotReady"),
        ]

    def test_calls_are_remembered(self):
        driver = Driver()
        driver.pod("a")
        assert [(record.rpc, record.request.config.metadata.name) for record in driver.runtime.calls] == [
            ("RunPodSandbox", "a")
        ]
        assert driver.runtime.trace()[-1] == "2030-01-01T00:00:00+00:00 RunPodSandbox answered OK"


class TestFeatures:
    def test_a_newer_runtime_has_more_calls(self):
        new = Features(runtime_config=True, metrics=True, sandbox_resources=True, cgroup_driver=pb.SYSTEMD)
        driver = Driver(features=new)
        sandbox = driver.pod()
        assert driver.call("RuntimeConfig", pb.RuntimeConfigRequest()).linux.cgroup_driver == pb.SYSTEMD
        resources = pb.LinuxContainerResources(cpu_shares=7)
        driver.call(
            "UpdatePodSandboxResources",
            pb.UpdatePodSandboxResourcesRequest(pod_sandbox_id=sandbox, resources=resources),
        )
        assert driver.runtime.sandboxes()[0].config.linux.resources.cpu_shares == 7
        driver.call("ListMetricDescriptors", pb.ListMetricDescriptorsRequest())
        driver.call("ListPodSandboxMetrics", pb.ListPodSandboxMetricsRequest())

    def test_two_address_families(self):
        driver = Driver(features=Features(dual_stack=True))
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=driver.pod())
        network = driver.call("PodSandboxStatus", request).status.network
        assert network.ip.startswith("10.88.")
        assert [each.ip[:4] for each in network.additional_ips] == ["fd00"]

    def test_the_events_of_the_cri_carry_statuses(self):
        driver = Driver()
        container = driver.run()
        start = next(event for event in reversed(driver.runtime.events) if event.topic == "/tasks/start")
        answer = driver.runtime.cri_event(start)
        assert answer.container_event_type == pb.CONTAINER_STARTED_EVENT
        assert answer.pod_sandbox_status.id == driver.runtime.sandboxes()[0].id
        assert [each.id for each in answer.containers_statuses] == [container]
        create = next(event for event in driver.runtime.events if event.topic == "/tasks/create")
        assert driver.runtime.cri_event(create) is None


def test_latency_is_drawn_from_the_seed():
    driver = Driver(latency=lambda rpc, rng: SECOND * rng.randint(1, 3) if rpc == "Version" else timedelta())
    call = driver.begin("Version", pb.VersionRequest())
    assert not call.is_done
    driver.after(3 * SECOND)
    assert call.is_done


def test_the_callers_messages_stay_the_callers():
    driver = Driver()
    request = sandbox_request()
    request.config.labels["a"] = "before"
    sandbox = driver.call("RunPodSandbox", request).pod_sandbox_id
    request.config.labels["a"] = "after"
    status = driver.call("PodSandboxStatus", pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox)).status
    status.labels["a"] = "mine"
    again = driver.call("PodSandboxStatus", pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox)).status
    assert again.labels["a"] == "before"


def test_addresses_are_given_out_in_turn_and_freed():
    driver = Driver()
    first = driver.runtime.sandboxes()[0].ips if driver.pod("a") else ()
    sandbox = driver.runtime.sandboxes()[0].id
    driver.call("RemovePodSandbox", pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox))
    driver.pod("b")
    assert driver.runtime.sandboxes()[0].ips != first


def test_usage_grows_with_time():
    driver = Driver(life.always(life.ContainerLife(cpu_cores=0.5, memory_bytes=1 << 20)))
    request = pb.ContainerStatsRequest(container_id=driver.run())
    before = driver.call("ContainerStats", request).stats
    driver.after(10 * SECOND)
    after = driver.call("ContainerStats", request).stats
    used = after.cpu.usage_core_nano_seconds.value - before.cpu.usage_core_nano_seconds.value
    assert used == pytest.approx(5e9, rel=0.01)
    assert after.memory.working_set_bytes.value == 1 << 20


def test_an_ambiguous_id_is_refused():
    driver = Driver()
    firsts = [driver.pod(name)[0] for name in map(str, range(40))]
    often = max(firsts, key=firsts.count)
    with pytest.raises(RpcFailure, match="Multiple IDs found"):
        driver.call("PodSandboxStatus", pb.PodSandboxStatusRequest(pod_sandbox_id=often))


def test_execs_are_scripted():
    driver = Driver(execs=lambda config, command: ExecResult(stdout=f"{config.metadata.name} {command[0]}".encode()))
    answer = driver.call("ExecSync", pb.ExecSyncRequest(container_id=driver.run(), cmd=["date"]))
    assert answer.stdout == b"main date"
