from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.manager import CgroupManager
from klet.host.cgroups.metrics import register_cgroups
from klet.host.cgroups.names import CgroupName
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.systemd import SystemdUnits
from klet.host.errors import SystemdError, SystemdTimeout, SystemdUnavailable
from klet.host.systemd_bus import SystemdConnection, parse_version
from klet.metrics import MetricRegistry
from klet.testing.cgroups import MemoryHierarchy
from klet.testing.systemd import FakeSystemd

POD = CgroupName(("kubepods", "burstable", "pod1-2"))
UNIT = "kubepods-burstable-pod1_2.slice"
PATH = f"/kubepods.slice/kubepods-burstable.slice/{UNIT}"


@pytest.fixture
async def systemd(dbus_address):
    fake = FakeSystemd(address=dbus_address)
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def bus(dbus_address):
    connection = SystemdConnection(address=dbus_address)
    yield connection
    await connection.close()


@pytest.fixture
def hierarchy():
    return MemoryHierarchy()


@pytest.fixture
async def cgroups(bus, hierarchy):
    threads = Threads(limit=1)
    units = SystemdUnits(bus=bus, mode=CgroupMode.UNIFIED)
    yield CgroupManager(
        hierarchy=hierarchy,
        units=units,
        threads=threads,
        clock=SystemClock(),
        durations=register_cgroups(MetricRegistry()),
    )
    threads.close()


async def test_a_cgroup_is_a_transient_slice_with_its_values(systemd, cgroups, hierarchy):
    await cgroups.create(
        POD, CgroupResources(cpu_shares=1024, cpu_quota=12500, cpu_period=100000, memory_limit=4096, cpuset="0-1")
    )
    values = systemd.units[UNIT].values()
    assert values["Description"] == f"libcontainer container {UNIT}"
    assert values["Wants"] == ["kubepods-burstable.slice"]
    assert values["MemoryAccounting"] is True
    assert values["DefaultDependencies"] is False
    assert values["MemoryMax"] == 4096
    assert values["CPUWeight"] == 39
    assert values["CPUQuotaPerSecUSec"] == 130000
    assert values["AllowedCPUs"] == b"\x03"
    assert systemd.units[UNIT].properties["MemoryMax"].signature == "t"
    # What the files say agrees with what systemd was given.
    assert hierarchy.cgroups[PATH].cpu_quota == 13000


async def test_a_slice_that_is_there_is_taken_as_it_is(systemd, cgroups):
    await cgroups.create(POD, CgroupResources())
    await cgroups.create(POD, CgroupResources(pids_limit=7))
    assert systemd.units[UNIT].values()["TasksMax"] == 7


async def test_destroying_stops_the_slice(systemd, cgroups):
    await cgroups.create(POD, CgroupResources())
    await cgroups.destroy(POD)
    assert systemd.units == {}
    assert not cgroups.exists(POD)
    assert systemd.calls[-2:] == [("StopUnit", UNIT), ("ResetFailedUnit", UNIT)]


async def test_destroying_what_systemd_does_not_know_removes_the_directories(systemd, cgroups, hierarchy):
    hierarchy.create(PATH, CgroupResources())
    await cgroups.destroy(POD)
    assert not cgroups.exists(POD)


async def test_children_are_read_from_slices(systemd, cgroups, hierarchy):
    await cgroups.create(POD, CgroupResources())
    hierarchy.create("/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope", CgroupResources())
    assert await cgroups.children(POD.parent) == {POD}


async def test_a_failed_job_is_an_error_and_the_unit_is_reset(systemd, cgroups):
    systemd.results[UNIT] = "failed"
    with pytest.raises(SystemdError, match=f"error creating systemd unit `{UNIT}`: got `failed`"):
        await cgroups.create(POD, CgroupResources())
    assert systemd.calls[-1] == ("ResetFailedUnit", UNIT)


async def test_a_job_that_never_ends_times_out(systemd, bus):
    systemd.hanging.add(UNIT)
    with pytest.raises(SystemdTimeout, match="did not finish StartTransientUnit"):
        await bus.start_transient_unit(UNIT, (), timedelta(milliseconds=50))


async def test_the_version_is_asked_once(systemd, bus):
    assert await bus.version() == 252
    assert await bus.version() == 252


async def test_values_of_an_unknown_slice_are_refused_by_name(systemd, bus):
    with pytest.raises(SystemdError) as caught:
        await bus.set_unit_properties("x.slice", ())
    assert caught.value.name == "org.freedesktop.systemd1.NoSuchUnit"


async def test_a_lost_connection_is_made_again(systemd, bus):
    assert await bus.start_transient_unit("a.slice", (), timedelta(seconds=5)) == "done"
    await bus.close()
    assert await bus.start_transient_unit("b.slice", (), timedelta(seconds=5)) == "done"
    assert set(systemd.units) == {"a.slice", "b.slice"}


async def test_a_bus_that_was_restarted_is_found_again(dbus_daemon, systemd, bus):
    assert await bus.start_transient_unit("a.slice", (), timedelta(seconds=5)) == "done"
    dbus_daemon.stop()
    dbus_daemon.start()
    await systemd.start()
    assert await bus.start_transient_unit("b.slice", (), timedelta(seconds=5)) == "done"


async def test_no_bus_at_all(tmp_path):
    connection = SystemdConnection(address=f"unix:path={tmp_path}/nowhere")
    with pytest.raises(SystemdUnavailable, match="cannot reach systemd at unix:path="):
        await connection.version()


async def test_a_bus_without_systemd(bus):
    with pytest.raises(SystemdError):
        await bus.version()


@pytest.mark.parametrize(("text", "version"), [("252.33-1~deb12u1", 252), ("v249", 249), ("255", 255), ("odd", 0)])
def test_parse_version(text, version):
    assert parse_version(text) == version
