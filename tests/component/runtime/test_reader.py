"""Reading pods out of the fake runtime."""

from datetime import timedelta

from msgspec.structs import replace

from klet.cri.errors import Code
from klet.model.runtime import RuntimeContainerState
from klet.runtime.hashing import container_hash
from klet.testing.builders import make_container, make_pod
from klet.testing.fake_runtime import Fault, Script
from klet.testing.fake_runtime.faults import Fail
from klet.testing.fake_runtime.lives import always, runs_for

SHORT = Script(lives=always(runs_for(timedelta(seconds=1), exit_code=3)))


def test_a_pod_is_read_with_its_sandbox_containers_and_address(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b", name="web", uid="u-1")
        await bench.sync(pod)
        await bench.sync(make_pod(name="other", uid="u-2"))
        status = await bench.status(pod)
        assert (status.uid, status.name, status.namespace) == ("u-1", "web", "default")
        assert len(status.ips) == 1
        assert [sandbox.ready for sandbox in status.sandboxes] == [True]
        assert {record.name for record in status.running()} == {"a", "b"}
        record = status.newest("a")
        assert record is not None
        assert record.spec_hash == container_hash(pod.spec.containers[0])
        assert record.restart_count == 0
        assert record.log_path.endswith("/var/log/pods/default_web_u-1/a/0.log")

    on_bench(test)


def test_what_was_just_started_is_read_without_a_search(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b", name="web", uid="u-1")
        outcome = await bench.sync(pod)
        before = len(bench.runtime.calls)
        status = await bench.reader.read_first("u-1", outcome.first)
        assert [call.rpc for call in bench.runtime.calls[before:]] == ["ContainerStatus"] * 2
        assert status == await bench.status(pod)

    on_bench(test)


def test_what_was_just_started_and_is_gone_is_searched_for(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b")
        outcome = await bench.sync(pod)
        bench.runtime.faults.add(Fault("ContainerStatus", Fail(Code.NOT_FOUND, "gone")))
        assert await bench.reader.read_first("uid-1", outcome.first) == await bench.status(pod)
        assert bench.calls("ListContainers")

    on_bench(test)


def test_an_exit_is_read_with_its_code(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        await bench.sleep(2)
        record = (await bench.status(pod)).newest("a")
        assert record is not None
        assert (record.state, record.exit_code, record.reason) == (RuntimeContainerState.EXITED, 3, "Error")
        assert record.finished_at - record.started_at == timedelta(seconds=1)

    on_bench(test, SHORT)


def test_a_pod_that_the_runtime_does_not_know_is_empty(on_bench):
    async def test(bench) -> None:
        assert (await bench.status(make_pod())).is_empty

    on_bench(test)


def test_what_vanishes_between_the_list_and_its_status_is_left_out(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a")
        await bench.sync(pod)
        bench.runtime.faults.add(Fault("ContainerStatus", Fail(Code.NOT_FOUND, "gone")))
        bench.runtime.faults.add(Fault("PodSandboxStatus", Fail(Code.NOT_FOUND, "gone")))
        assert (await bench.status(pod)).is_empty
        assert not (await bench.status(pod)).is_empty

    on_bench(test)


def test_lists_show_every_pod_with_the_states_of_its_members(on_bench):
    async def test(bench) -> None:
        pods = [make_pod("a", name="one", uid="u-1"), make_pod("b", name="two", uid="u-2")]
        for pod in pods:
            await bench.sync(pod)
        await bench.sleep(2)
        listed = await bench.reader.list_pods()
        assert {uid: sorted(pod.members().values()) for uid, pod in listed.items()} == {
            "u-1": ["exited", "running"],
            "u-2": ["exited", "running"],
        }
        assert listed["u-1"].name == "one"

    on_bench(test, SHORT)


def test_the_owner_of_an_id(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", uid="u-1")
        await bench.sync(pod)
        status = await bench.status(pod)
        assert await bench.reader.owner_of(status.containers[0].id) == "u-1"
        assert await bench.reader.owner_of(status.sandboxes[0].id) == "u-1"
        assert await bench.reader.owner_of("nobody") is None

    on_bench(test)


def test_what_has_not_changed_gives_the_same_record_and_what_has_a_new_one(on_bench):
    async def test(bench) -> None:
        pod = make_pod("a", "b")
        await bench.sync(pod)
        first = await bench.status(pod)
        again = await bench.status(pod)
        assert again.newest("a") is first.newest("a")
        ended = first.newest("a")
        assert ended is not None
        bench.runtime.end_container(ended.id, 3)
        after = await bench.status(pod)
        assert after.newest("a").state is RuntimeContainerState.EXITED
        assert after.newest("b") is first.newest("b")

    on_bench(test)


def test_termination_messages_that_come_later_are_read(on_bench):
    async def test(bench) -> None:
        pod = make_pod(replace(make_container("a"), termination_message_policy="FallbackToLogsOnError"))
        await bench.sync(pod)
        [container] = bench.runtime.containers()
        bench.runtime.end_container(container.id, 1)
        assert (await bench.status(pod)).newest("a").message == ""
        bench.sink.open(container.log_path)
        bench.runtime.write_log(container.id, "farewell")
        assert "farewell" in (await bench.status(pod)).newest("a").message

    on_bench(test)
