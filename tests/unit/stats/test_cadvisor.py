"""The series of `/metrics/cadvisor`, read back with Prometheus' own parser and compared with upstream's list."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from klet.api.stats import PSIData, PSIStats
from klet.host.machine.info import Cpu, MachineInfo, MemoryModules, SystemVersions
from klet.model.stats import (
    CgroupIdentity,
    CgroupLevel,
    CgroupPressure,
    CgroupStats,
    CpuCounters,
    DeviceIo,
    DiskCounters,
    InterfaceCounters,
    MachineFilesystem,
    MemoryCounters,
    ProcessCounters,
    StatsSnapshot,
)
from klet.stats.cadvisor import write_cadvisor

UPSTREAM = json.loads((Path(__file__).parents[2] / "data/upstream_metrics.json").read_text())["/metrics/cadvisor"]
AT = datetime(2030, 1, 1, 0, 0, 5, 123999, tzinfo=UTC)
NOW = datetime(2030, 1, 1, 0, 0, 9, 500000, tzinfo=UTC)
STAMP = 1893456005.123
SDA = DeviceIo(major=8, minor=0, device="/dev/sda", bytes={"Read": 10, "Write": 20}, operations={"Read": 1, "Write": 2})
ETH0 = InterfaceCounters("eth0", 1, 2, 3, 4, 5, 6, 7, 8)
DISK = DiskCounters(1, 2, 3, 4000, 5, 6, 7, 8000, 9, 10_000, 11_500)
ROOT_FS = MachineFilesystem(
    device="/dev/vda1", mount_point="/", capacity=100, free=40, available=30, inodes=50, inodes_free=20, disk=DISK
)
TMPFS = MachineFilesystem(
    device="/run", mount_point="/run", capacity=10, free=10, available=10, inodes=5, inodes_free=5
)
MEMORY = MemoryCounters(
    usage=1, working_set=2, rss=3, cache=4, mapped_file=5, swap=6, kernel=7, max_usage=8, failures=9, active_file=10,
    inactive_file=11, page_faults=12, major_page_faults=13, hierarchy_page_faults=14, hierarchy_major_page_faults=15,
    limit=16, swap_limit=17, reservation=18,
)  # fmt: skip
CPU = CpuCounters(
    usage=1_500_000_000, user=500_000_000, system=250_000_000, periods=3, throttled_periods=2, throttled=4_000_000,
    shares=512, quota=50_000, period=100_000,
)  # fmt: skip
MACHINE = MachineInfo(
    cpus=4, memory=8 << 30, swap=1 << 30, machine_id="m", system_uuid="s", boot_id="b",
    topology=(Cpu(0, 0, 0, 0), Cpu(1, 0, 0, 0), Cpu(2, 0, 1, 0), Cpu(3, 0, 1, 0)),
    dimms={"Unbuffered-DDR4": MemoryModules(2, 8 << 30)},
)  # fmt: skip
VERSIONS = SystemVersions("6.1.0", "Debian GNU/Linux 12")


def cgroup(path, level, **names):
    return CgroupIdentity(path=path, level=level, **names)


CONTAINER = CgroupStats(
    cgroup=cgroup(
        "/kubepods/pod1/c1", CgroupLevel.CONTAINER, container_id="c1", image="app:1", namespace="ns", pod="web",
        container="main",
    ),
    sampled_at=AT,
    created_at=AT - timedelta(seconds=3),
    cpu=CPU,
    memory=MEMORY,
    io=(SDA,),
    processes=ProcessCounters(processes=1, threads=2, threads_max=3, file_descriptors=4, sockets=5, max_open_files=6),
    pressure=CgroupPressure(cpu=PSIStats(full=PSIData(total=1_500_000), some=PSIData(total=2_000_000))),
    oom_events=7,
)  # fmt: skip
SANDBOX = replace(
    CONTAINER,
    cgroup=cgroup(
        "/kubepods/pod1/s1", CgroupLevel.SANDBOX, container_id="s1", image="pause", namespace="ns", pod="web"
    ),
    network=(ETH0,),
    io=(),
)
POD = replace(
    CONTAINER, cgroup=cgroup("/kubepods/pod1", CgroupLevel.POD, namespace="ns", pod="web"), io=(),
    cpu=CpuCounters(usage=0), processes=ProcessCounters(),
)  # fmt: skip
ROOT = replace(CONTAINER, cgroup=cgroup("/", CgroupLevel.ROOT), network=(replace(ETH0, name="ens3"),))
NODE = StatsSnapshot(taken_at=AT, cgroups=(ROOT, POD, SANDBOX, CONTAINER), filesystems=(ROOT_FS, TMPFS))


def text_of(snapshot=NODE, machine=MACHINE, versions=VERSIONS):
    return b"".join(write_cadvisor(snapshot, machine, versions, now=NOW)).decode()


def samples_of(*arguments, **options):
    families = text_string_to_metric_families(text_of(*arguments, **options))
    # The parser adds _total to the one counter whose name has none.
    names = {"container_memory_failcnt_total": "container_memory_failcnt"}
    return [
        sample._replace(name=names.get(sample.name, sample.name)) for family in families for sample in family.samples
    ]


def values_of(name, snapshot=NODE, label="id", **wanted):
    return {
        sample.labels[label]: sample.value
        for sample in samples_of(snapshot)
        if sample.name == name and wanted.items() <= sample.labels.items()
    }


def test_every_family_of_upstream_is_there_with_its_type_its_labels_and_its_timestamp():
    types = dict(line.split()[2:] for line in text_of().splitlines() if line.startswith("# TYPE"))
    assert types == {name: about["type"] for name, about in UPSTREAM.items()}
    for sample in samples_of():
        about = UPSTREAM[sample.name]
        assert (sample.name, sorted(sample.labels)) == (sample.name, about["labels"])
        assert (sample.name, sample.timestamp is not None) == (sample.name, about["timestamp"])


def test_families_are_sorted_and_no_series_comes_twice():
    text = text_of()
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert names == sorted(names)
    series = [(sample.name, *sorted(sample.labels.items())) for sample in samples_of()]
    assert len(series) == len(set(series))


CONTAINER_VALUES = {
    "container_cpu_usage_seconds_total": 1.5,
    "container_cpu_user_seconds_total": 0.5,
    "container_cpu_system_seconds_total": 0.25,
    "container_cpu_cfs_periods_total": 3,
    "container_cpu_cfs_throttled_periods_total": 2,
    "container_cpu_cfs_throttled_seconds_total": 0.004,
    "container_memory_usage_bytes": 1,
    "container_memory_working_set_bytes": 2,
    "container_memory_rss": 3,
    "container_memory_cache": 4,
    "container_memory_mapped_file": 5,
    "container_memory_swap": 6,
    "container_memory_kernel_usage": 7,
    "container_memory_max_usage_bytes": 8,
    "container_memory_failcnt": 9,
    "container_memory_total_active_file_bytes": 10,
    "container_memory_total_inactive_file_bytes": 11,
    "container_spec_memory_limit_bytes": 16,
    "container_spec_memory_swap_limit_bytes": 17,
    "container_spec_memory_reservation_limit_bytes": 18,
    "container_spec_cpu_shares": 512,
    "container_spec_cpu_quota": 50_000,
    "container_spec_cpu_period": 100_000,
    "container_start_time_seconds": 1893456002,
    "container_last_seen": 1893456009,
    "container_processes": 1,
    "container_threads": 2,
    "container_threads_max": 3,
    "container_file_descriptors": 4,
    "container_sockets": 5,
    "container_ulimits_soft": 6,
    "container_oom_events_total": 7,
    "container_pressure_cpu_stalled_seconds_total": 1.5,
    "container_pressure_cpu_waiting_seconds_total": 2,
    "container_pressure_io_stalled_seconds_total": 0,
    "container_fs_reads_bytes_total": 10,
    "container_fs_writes_bytes_total": 20,
    "container_fs_reads_total": 1,
    "container_fs_writes_total": 2,
}


def test_the_values_of_a_container():
    of_container = {
        sample.name: sample.value for sample in samples_of() if sample.labels.get("id") == "/kubepods/pod1/c1"
    }
    assert {name: of_container[name] for name in CONTAINER_VALUES} == CONTAINER_VALUES


def test_a_sample_has_the_time_of_its_reading_and_last_seen_that_of_the_scrape():
    stamps = {sample.name: sample.timestamp for sample in samples_of()}
    assert float(stamps["container_memory_rss"]) == pytest.approx(STAMP)
    assert float(stamps["container_last_seen"]) == pytest.approx(1893456009.5)


def test_a_sandbox_has_a_pod_and_no_container():
    [labels] = [
        sample.labels
        for sample in samples_of()
        if sample.name == "container_memory_rss" and sample.labels["id"].endswith("s1")
    ]
    assert labels == {
        "container": "", "id": "/kubepods/pod1/s1", "image": "pause", "name": "s1", "namespace": "ns", "pod": "web",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "container_cpu_usage_seconds_total",
            {"/", "/kubepods/pod1/s1", "/kubepods/pod1/c1"},
            id="no CPU time while it is 0",
        ),
        pytest.param(
            "container_cpu_cfs_periods_total",
            {"/", "/kubepods/pod1/s1", "/kubepods/pod1/c1"},
            id="throttling with a quota alone",
        ),
        pytest.param("container_network_receive_bytes_total", {"/", "/kubepods/pod1/s1"}, id="network"),
        pytest.param("container_fs_usage_bytes", {"/"}, id="filesystems of the root alone"),
        pytest.param("container_fs_sector_reads_total", {"/"}, id="diskstats of the root alone"),
        pytest.param("container_fs_reads_total", {"/", "/kubepods/pod1/c1"}, id="operations of the controller too"),
    ],
)
def test_which_cgroups_have_a_family(name, expected):
    assert set(values_of(name)) == expected


def test_the_disks_of_the_root_are_those_of_its_filesystems():
    assert values_of("container_fs_reads_total", label="device", id="/") == {"/dev/vda1": 1, "/run": 0}
    assert values_of("container_fs_io_time_weighted_seconds_total", label="device") == {"/dev/vda1": 11.5, "/run": 0}
    assert values_of("container_fs_usage_bytes", label="device") == {"/dev/vda1": 60, "/run": 0}


@pytest.mark.parametrize(("limit", "shown"), [(1 << 62, 1 << 62), ((1 << 62) + 1, 0), ((1 << 64) - 1, 0)])
def test_a_limit_beyond_all_memory_is_shown_as_0(limit, shown):
    node = StatsSnapshot(taken_at=AT, cgroups=(replace(ROOT, memory=replace(MEMORY, limit=limit)),))
    assert values_of("container_spec_memory_limit_bytes", node) == {"/": shown}


def test_a_cgroup_without_controllers_has_zeros_and_no_settings():
    node = StatsSnapshot(taken_at=AT, cgroups=(replace(ROOT, cpu=None, memory=None),))
    assert values_of("container_memory_usage_bytes", node) == {"/": 0}
    assert values_of("container_cpu_user_seconds_total", node) == {"/": 0}
    assert values_of("container_spec_cpu_shares", node) == {}
    assert values_of("container_spec_memory_limit_bytes", node) == {}


def test_the_machine():
    labels = {"machine_id": "m", "system_uuid": "s", "boot_id": "b"}
    shown = {sample.name: sample.value for sample in samples_of() if labels.items() <= sample.labels.items()}
    assert shown == {
        "machine_cpu_cores": 4, "machine_cpu_physical_cores": 2, "machine_cpu_sockets": 2,
        "machine_memory_bytes": 8 << 30, "machine_swap_bytes": 1 << 30, "machine_dimm_count": 2,
        "machine_dimm_capacity_bytes": 8 << 30, "machine_nvm_capacity": 0, "machine_nvm_avg_power_budget_watts": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "errors"),
    [
        pytest.param((NODE, MACHINE, VERSIONS), (0, 0), id="all is read"),
        pytest.param((None, MACHINE, VERSIONS), (1, 0), id="no cgroups"),
        pytest.param((NODE, MACHINE, None), (1, 0), id="no versions"),
        pytest.param((NODE, None, VERSIONS), (0, 1), id="no machine"),
        pytest.param((None, None, None), (1, 1), id="nothing"),
    ],
)
def test_what_cannot_be_read_is_a_scrape_error(parts, errors):
    shown = {sample.name: sample.value for sample in samples_of(*parts)}
    assert (shown["container_scrape_error"], shown["machine_scrape_error"]) == errors


HOSTILE = ['a"} 1\nfake_metric 2', "back\\slash\\n", "\udcff\ud800", "x" * 10_000, "\r\0\u2028", "é" * 5000, "{},="]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_stay_within_their_labels(text):
    names = replace(CONTAINER.cgroup, image=text, pod=text, namespace=text, container=text, path=f"/{text}")
    node = StatsSnapshot(taken_at=AT, cgroups=(ROOT, replace(CONTAINER, cgroup=names, io=(replace(SDA, device=text),))))
    samples = samples_of(node)
    assert {sample.name for sample in samples} <= set(UPSTREAM)
    [labels] = [each.labels for each in samples if each.name == "container_memory_rss" and each.labels["id"] != "/"]
    clean = text.encode("utf-8", "replace").decode()
    if len(clean.encode()) <= 1024:
        assert labels["image"] == clean
    assert all(len(value.encode()) <= 4096 for value in labels.values())
