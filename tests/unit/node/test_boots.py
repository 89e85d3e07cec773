"""A reboot is recognised by the boot id that the last run of the agent saved."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from klet.checkpoint import CheckpointError
from klet.host.machine.info import MachineInfo
from klet.journal.memory import MemoryJournal
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.node.boots import BOOT_FORMAT, BootKeeper, BootRecord, find_boot_change
from klet.testing.clock import START, ManualClock

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)
BEFORE = BootRecord(boot_id="one", booted_at=NOW - timedelta(days=2), noticed_at=NOW - timedelta(days=1))
MACHINE = MachineInfo(cpus=2, memory=1 << 30, boot_id="two", booted_at=NOW - timedelta(seconds=30))
PODS = frozenset({PodUID("uid-1")})


@pytest.mark.parametrize(
    ("previous", "machine"),
    [
        pytest.param(None, MACHINE, id="the first run of an agent"),
        pytest.param(replace(BEFORE, boot_id="two"), MACHINE, id="the same boot"),
        pytest.param(BEFORE, replace(MACHINE, boot_id=""), id="a machine without a boot id"),
    ],
)
def test_no_reboot(previous, machine):
    assert find_boot_change(previous, machine, last_record=NOW, now=NOW) is None


def test_a_reboot_is_described_with_both_boots_and_how_long_the_node_was_away():
    found = find_boot_change(BEFORE, MACHINE, last_record=NOW - timedelta(seconds=90), now=NOW)
    assert found.decision is Reason.NODE_REBOOTED
    assert found.measurements == {
        "bootId": "two",
        "previousBootId": "one",
        "bootedAt": "2030-01-01T11:59:30+00:00",
        "previousBootedAt": "2029-12-30T12:00:00+00:00",
        "lastRecordAt": "2030-01-01T11:58:30+00:00",
        "awaySeconds": 90.0,
        "agentWasStopped": False,
    }
    assert found.message == (
        "the node was rebooted and is back after 90 s away, booted at 2030-01-01 11:59:30 UTC; "
        "the agent had not been stopped before: a reset, a loss of power, or a crash"
    )
    assert found.since == NOW - timedelta(seconds=90)


def test_the_stop_of_the_agent_is_the_last_sign_of_it():
    stopped = replace(BEFORE, stopped_at=NOW - timedelta(seconds=60))
    found = find_boot_change(stopped, MACHINE, last_record=NOW - timedelta(seconds=90), now=NOW)
    assert found.measurements["awaySeconds"] == 60
    assert found.measurements["agentWasStopped"] is True
    assert found.message.endswith("the agent had been stopped before, as in a shutdown")


@pytest.mark.parametrize(
    "last_record",
    [pytest.param(None, id="nothing is known"), pytest.param(NOW + timedelta(1), id="the clock was set back")],
)
def test_how_long_the_node_was_away_is_not_always_known(last_record):
    found = find_boot_change(BEFORE, replace(MACHINE, booted_at=None), last_record=last_record, now=NOW)
    assert "awaySeconds" not in found.measurements
    assert found.since is None
    assert "bootedAt" not in found.measurements


class Store:
    """The file, which may not be writable."""

    def __init__(self, left=None):
        self.left = left
        self.error = None

    async def save(self, value):
        if self.error is not None:
            raise self.error
        self.left = BOOT_FORMAT.decode(BOOT_FORMAT.encode(value))


class Machine:
    """The boots of one machine, and the agents on it."""

    def __init__(self):
        self.store, self.clock, self.boot_id = Store(), ManualClock(), "one"
        self.journal = MemoryJournal(clock=self.clock)

    def agent(self):
        return BootKeeper(
            left=self.store.left,
            store=self.store,
            machine=replace(MACHINE, boot_id=self.boot_id),
            recorder=self.journal,
            clock=self.clock,
        )

    async def start(self, keeper):
        return await keeper.start(last_record=self.journal.last_record_at, pods=PODS)


async def test_a_reboot_is_recorded_by_the_first_run_after_it_and_known_to_the_later_ones():
    machine = Machine()
    assert await machine.start(machine.agent()) is None
    machine.boot_id = "two"
    first = machine.agent()
    reboot = await machine.start(first)
    [record] = machine.journal.all()
    assert (reboot.cause, reboot.noticed_at, reboot.before) == (record.id, START, PODS)
    # It was killed before it got as far as pods: the next one still knows which there were.
    assert (await machine.start(machine.agent())).before == PODS
    await first.note_running()
    machine.clock.advance(timedelta(seconds=5))
    later = await machine.start(machine.agent())
    assert (later.cause, later.noticed_at, later.before) == (record.id, START, frozenset())
    assert machine.journal.all() == (record,)


async def test_only_an_agent_that_was_stopped_counts_as_such():
    machine = Machine()
    agent = machine.agent()
    await machine.start(agent)
    await agent.note_running()
    assert machine.store.left.stopped_at is None
    await agent.note_stopped()
    assert machine.store.left.stopped_at == START
    again = machine.agent()
    await machine.start(again)
    assert machine.store.left.stopped_at == START
    await again.note_running()
    assert machine.store.left.stopped_at is None


async def test_a_machine_without_a_boot_id_saves_nothing():
    machine = Machine()
    machine.boot_id = ""
    agent = machine.agent()
    assert await machine.start(agent) is None
    await agent.note_running()
    await agent.note_stopped()
    assert machine.store.left is None


async def test_a_disk_that_is_full_does_not_stop_the_agent(caplog):
    machine = Machine()
    machine.store.error = CheckpointError("no space left")
    assert await machine.start(machine.agent()) is None
    assert [record.message for record in caplog.records] == ["The boot of the machine cannot be saved"]
