"""What the agent leaves to its next life."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.broadcast import Broadcast
from klet.aio.clock import LoopClock
from klet.aio.threads import Threads
from klet.api.container_status import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from klet.api.pod import PodCondition, PodIP, PodStatus
from klet.api.quantity import Quantity
from klet.api.times import Time
from klet.checkpoint import CheckpointDamaged, CheckpointError, CheckpointFile, Damaged, Found
from klet.model.pods import PodUID
from klet.model.saved_state import CrashDelay, PullDelay, SavedState
from klet.status.board import StatusBoard
from klet.status.checkpoint import SavedStateFormat, SavedStateKeeper
from klet.testing.builders import NOW
from klet.testing.clock import ManualClock
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-1")
DELAY = CrashDelay(
    uid=UID,
    container="main",
    image="busybox",
    resources="{}",
    delay=timedelta(seconds=40),
    counted_at=NOW + timedelta(microseconds=123456),
)
PULL = PullDelay(
    uid=UID, image="busybox:1", delay=timedelta(seconds=20), counted_at=NOW, reason="ErrImagePull", message="no host"
)
STATUS = PodStatus(
    phase="Running",
    conditions=(PodCondition(type="Ready", status="False", last_transition_time=Time.of(NOW)),),
    pod_ip="10.0.0.7",
    pod_ips=(PodIP(ip="10.0.0.7"),),
    start_time=Time.of(NOW),
    allocated_resources={"cpu": Quantity.parse("100m")},
    container_statuses=(
        ContainerStatus(
            name="main",
            restart_count=3,
            state=ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff", message="back-off 40s")),
            last_state=ContainerState(terminated=ContainerStateTerminated(exit_code=3, finished_at=Time.of(NOW))),
        ),
    ),
)
MEMORY = SavedState(statuses={UID: STATUS}, delays=(DELAY,), pulls=(PULL,))


def test_what_is_written_is_read_again():
    assert SavedStateFormat().decode(SavedStateFormat().encode(MEMORY)) == MEMORY


def test_a_changed_status_is_encoded_again():
    form = SavedStateFormat()
    form.encode(MEMORY)
    changed = SavedState(statuses={UID: PodStatus(phase="Failed")})
    assert form.decode(form.encode(changed)) == changed


@pytest.mark.parametrize(
    ("old", "new"),
    [pytest.param(b"Running", b"Walking", id="a flipped bit"), pytest.param(b"{", b"", id="not JSON")],
)
def test_a_damaged_file_is_reported(old, new):
    data = SavedStateFormat().encode(MEMORY)
    with pytest.raises(CheckpointDamaged):
        SavedStateFormat().decode(data.replace(old, new))


async def test_a_damaged_file_is_set_aside_and_written_again(tmp_path):
    threads = Threads(limit=1)
    path = tmp_path / "klet-memory.json"

    def open_file() -> CheckpointFile[SavedState]:
        return CheckpointFile(path=path, form=SavedStateFormat(), threads=threads, clock=ManualClock())

    try:
        path.write_text("{}")
        file = open_file()
        found = file.load()
        assert isinstance(found, Damaged)
        assert found.set_aside.read_text() == "{}"
        await file.save(MEMORY)
        assert open_file().load() == Found(MEMORY)
    finally:
        threads.close()


def test_what_belongs_to_no_valid_uid_is_left_out_and_the_rest_stays():
    form = SavedStateFormat()
    bad = SavedState(
        statuses={**MEMORY.statuses, "..": PodStatus()},
        delays=(*MEMORY.delays, *(replace(each, uid="..") for each in MEMORY.delays)),
        pulls=(*MEMORY.pulls, *(replace(each, uid="") for each in MEMORY.pulls)),
    )
    assert MEMORY.delays
    assert MEMORY.pulls
    assert form.decode(form.encode(bad)) == MEMORY


class Delays:
    """Back-offs of the test's own."""

    def __init__(self):
        self.delays = ()
        self.sender = Broadcast[PodUID]()

    def all(self):
        return self.delays

    def changes(self):
        return self.sender.subscribe()


class Store:
    """Keeps what was saved; can be full."""

    def __init__(self):
        self.saved = []
        self.synced = []
        self.is_full = False

    async def save(self, value, *, sync):
        if self.is_full:
            raise CheckpointError("no space left")
        assert not sync
        self.saved.append(value)

    async def sync_to_disk(self):
        self.synced.append(len(self.saved))


def on_bench(test):
    async def main():
        clock = LoopClock(epoch=EPOCH)
        board, delays, pulls, store = StatusBoard(clock=clock), Delays(), Delays(), Store()
        keeper = SavedStateKeeper(store=store, statuses=board, delays=delays, pulls=pulls, clock=clock)

        async def pause(seconds):
            await clock.sleep(timedelta(seconds=seconds))

        async with asyncio.TaskGroup() as group:
            task = group.create_task(keeper.run())
            await pause(0.01)
            await test(board, delays, pulls, store, pause)
            task.cancel()

    run_virtual(main())


def test_a_change_is_written_at_once_and_those_right_after_it_together():
    async def test(board, delays, pulls, store, pause):
        board.put(UID, PodStatus(phase="Unknown"))
        await pause(0.01)
        assert [memory.statuses[UID].phase for memory in store.saved] == ["Unknown"]
        for phase in ("Pending", "Running", "Succeeded"):
            board.put(UID, PodStatus(phase=phase))
        delays.delays = (DELAY,)
        delays.sender.send(UID)
        await pause(0.2)
        [_, memory] = store.saved
        assert memory.statuses[UID].phase == "Succeeded"
        assert memory.delays == (DELAY,)

    on_bench(test)


def test_a_pod_that_is_gone_is_written_at_once():
    """Its UID may come back: a restart must not find the counts of the pod that is gone."""

    async def test(board, delays, pulls, store, pause):
        board.put(UID, STATUS)
        await pause(0.01)
        board.forget(UID)
        await pause(0.01)
        assert [list(memory.statuses) for memory in store.saved] == [[UID], []]

    on_bench(test)


def test_a_back_off_alone_is_written_too():
    async def test(board, delays, pulls, store, pause):
        delays.delays = (DELAY,)
        delays.sender.send(UID)
        await pause(0.2)
        pulls.delays = (PULL,)
        pulls.sender.send(UID)
        await pause(0.2)
        assert [(memory.delays, memory.pulls) for memory in store.saved] == [((DELAY,), ()), ((DELAY,), (PULL,))]

    on_bench(test)


def test_nothing_is_written_while_nothing_changes():
    async def test(board, delays, pulls, store, pause):
        board.put(UID, STATUS)
        await pause(0.2)
        for _ in range(10):
            board.put(UID, STATUS)
            await pause(1)
        assert len(store.saved) == 1
        board.forget(UID)
        await pause(0.2)
        assert store.saved[-1].statuses == {}

    on_bench(test)


def test_it_is_synced_to_disk_once_nothing_changes():
    async def test(board, delays, pulls, store, pause):
        for phase in ("Pending", "Running", "Succeeded"):
            board.put(UID, PodStatus(phase=phase))
            await pause(1)
        assert (len(store.saved), store.synced) == (3, [])
        await pause(2)
        assert store.synced == [3]
        await pause(60)
        assert store.synced == [3]

    on_bench(test)


def test_it_is_synced_to_disk_now_and_then_while_changes_never_end():
    async def test(board, delays, pulls, store, pause):
        for number in range(700):
            board.put(UID, PodStatus(message=str(number)))
            await pause(0.1)
        assert len(store.synced) == 2

    on_bench(test)


def test_a_full_disk_is_tried_again(caplog):
    async def test(board, delays, pulls, store, pause):
        store.is_full = True
        board.put(UID, STATUS)
        await pause(1)
        assert "Cannot save pod statuses; a restart of klet would lose them" in caplog.text
        board.put(UID, PodStatus(phase="Failed"))
        store.is_full = False
        await pause(5)
        assert [memory.statuses[UID].phase for memory in store.saved][-1] == "Failed"

    on_bench(test)
