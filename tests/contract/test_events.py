import asyncio

import pytest

from klet.cri.errors import CriError
from klet.cri.events import ContainerdEvents, EventKind


async def test_a_sandbox_is_created_and_started(bench):
    pod = await bench.pod()
    await bench.events.until("/tasks/start", pod.id)
    assert bench.events.topics(pod.id) == ["/containers/create", "/tasks/create", "/tasks/start"]


async def test_the_whole_life_of_a_container_is_reported_in_order(bench):
    pod = await bench.pod()
    status = await bench.run_to_end(pod, "sh", "-c", "sleep 1; exit 3")
    await bench.events.until("/tasks/delete", status.id)
    await bench.remove(status.id)
    await bench.events.until("/containers/delete", status.id)
    assert bench.events.topics(status.id) == [
        "/containers/create",
        "/tasks/create",
        "/tasks/start",
        "/tasks/exit",
        "/tasks/delete",
        "/containers/delete",
    ]


async def test_stopping_a_sandbox_ends_containers_before_itself(bench):
    pod = await bench.pod()
    container = await bench.run(pod)
    await bench.stop_pod(pod)
    await bench.events.until("/tasks/delete", pod.id)
    ends = [(event.topic, event.id) for event in bench.events.seen if event.topic in ("/tasks/exit", "/tasks/delete")]
    assert ends == [(topic, id_) for id_ in (container, pod.id) for topic in ("/tasks/exit", "/tasks/delete")]


async def test_removing_a_sandbox_deletes_containers_before_itself(bench):
    pod = await bench.pod()
    container = await bench.create(pod)
    await bench.remove_pod(pod)
    await bench.events.until("/containers/delete", pod.id)
    deleted = [event.id for event in bench.events.seen if event.topic == "/containers/delete"]
    assert deleted == [container, pod.id]


async def test_a_container_that_never_started_has_no_exit(bench):
    container = await bench.create(await bench.pod(), "nope")
    with pytest.raises(CriError, match="executable file not found"):
        await bench.start(container)
    await bench.remove(container)
    await bench.events.until("/containers/delete", container)
    assert "/tasks/exit" not in bench.events.topics(container)


async def test_envelopes_carry_namespace_time_and_bare_type(bench):
    pod = await bench.pod()
    envelope = (await bench.events.until("/tasks/start", pod.id)).envelope
    assert envelope.namespace == "k8s.io"
    assert envelope.event.type_url == "containerd.events.TaskStart"
    created_at = (await bench.sandbox_status(pod)).created_at
    stamp = envelope.timestamp.seconds * 1_000_000_000 + envelope.timestamp.nanos
    assert abs(stamp - created_at) < 10e9


async def test_klets_own_subscription_reports_start_and_stop(bench):
    pod = await bench.pod()
    container = await bench.create(pod, "sh", "-c", "sleep 1")
    kinds = []

    async def watch():
        async for event in ContainerdEvents(connection=bench.client.runtime).subscribe():
            if event.container_id == container:
                kinds.append(event.kind)
                if event.kind is EventKind.STOPPED:
                    return
            elif not kinds:
                # An event of another container shows that the subscription stands.
                kinds.append("subscribed")
                await bench.start(container)

    async def nudge():
        # Until the subscription stands, events are lost: make new ones.
        while "subscribed" not in kinds:
            other = await bench.create(pod, name=f"other{len(bench.events.seen)}")
            await bench.remove(other)

    async def both():
        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            group.create_task(nudge())

    await bench.passing(both())
    assert kinds == ["subscribed", EventKind.STARTED, EventKind.STOPPED]
    assert (await bench.until_exited(container)).exit_code == 0
