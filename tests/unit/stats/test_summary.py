"""How a summary is composed of what was measured."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from klet.api.stats import (
    CPUStats,
    FsStats,
    IOStats,
    MemoryStats,
    NetworkStats,
    ProcessStats,
    PSIData,
    PSIStats,
    RlimitStats,
    RuntimeStats,
    SwapStats,
    VolumeStats,
)
from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState, SandboxRecord
from klet.model.stats import (
    NO_LIMIT,
    CgroupIdentity,
    CgroupLevel,
    CgroupPressure,
    CgroupStats,
    ContainerDisk,
    CpuCounters,
    InterfaceCounters,
    MemoryCounters,
    PodDisk,
    ProcessCounters,
    StatsSnapshot,
    SystemCgroups,
)
from klet.stats.summary import (
    NodeDisks,
    RuntimeNumbers,
    SummaryInputs,
    build_summary,
    choose_sandbox,
    unknown_containers,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
AT = NOW - timedelta(seconds=3)
BOOT = NOW - timedelta(days=1)
STARTED = NOW - timedelta(hours=1)
RUNNING, EXITED = RuntimeContainerState.RUNNING, RuntimeContainerState.EXITED
CPU = CpuCounters(usage=1000, rate=500)
MEMORY = MemoryCounters(
    usage=100, working_set=80, rss=60, swap=5, page_faults=7, major_page_faults=1, limit=200, swap_limit=50
)
PSI = PSIStats(some=PSIData(total=9, avg10=0.5))
FS = FsStats(time=AT, used_bytes=1)


def cgroup(path, level=CgroupLevel.OTHER, *, cpu=CPU, memory=MEMORY, **rest):
    names = {name: rest.pop(name) for name in ("container_id", "pod_uid") if name in rest}
    return CgroupStats(
        cgroup=CgroupIdentity(path=path, level=level, **names),
        sampled_at=AT,
        created_at=STARTED,
        cpu=cpu,
        memory=memory,
        **rest,
    )


ROOT = cgroup("/", CgroupLevel.ROOT, network=(InterfaceCounters("ens3", 1, 2, 3, 4, 5, 6, 7, 8),))


def record(name, state=RUNNING, id_=None, created=NOW):
    return ContainerRecord(id=id_ or f"id-{name}", sandbox_id="sandbox", name=name, state=state, created_at=created)


def sandbox(ready=True, id_="sandbox"):
    return SandboxRecord(id=id_, attempt=0, ready=ready, created_at=STARTED)


READY = (sandbox(),)


def pod(*records, sandboxes=READY):
    return PodRuntimeStatus(uid="uid", name="web", namespace="ns", sandboxes=sandboxes, containers=records)


def summarize(*cgroups, pods=(), disks=None, system=None, **rest):
    snapshot = StatsSnapshot(taken_at=NOW, cgroups=(ROOT, *cgroups), system=system or SystemCgroups())
    return build_summary(
        SummaryInputs(
            node_name="node",
            now=NOW,
            snapshot=snapshot,
            root=ROOT,
            pods={each.uid: each for each in pods},
            booted_at=BOOT,
            agent_started=NOW,
            unknown=rest.pop("unknown", {}),
            disks=disks,
            rlimit=RlimitStats(time=NOW, maxpid=10, curproc=5),
            **rest,
        )
    )


def disks(**pods):
    return NodeDisks(fs=FS, runtime=RuntimeStats(image_fs=FS, container_fs=FS), pods=pods)


def test_the_node_has_everything_in_the_full_form():
    node = summarize(disks=disks()).node
    assert node.start_time == BOOT
    assert node.cpu == CPUStats(time=AT, usage_nano_cores=500, usage_core_nano_seconds=1000, psi=PSIStats())
    assert node.memory == MemoryStats(
        time=AT,
        available_bytes=120,
        usage_bytes=100,
        working_set_bytes=80,
        rss_bytes=60,
        page_faults=7,
        major_page_faults=1,
        psi=PSIStats(),
    )
    assert node.swap == SwapStats(time=AT, swap_available_bytes=45, swap_usage_bytes=5)
    assert node.io == IOStats(time=AT, psi=PSIStats())
    assert (node.fs, node.runtime, node.rlimit) == (
        FS,
        RuntimeStats(image_fs=FS, container_fs=FS),
        RlimitStats(time=NOW, maxpid=10, curproc=5),
    )


def test_the_short_form_has_cpu_memory_and_swap_alone():
    own = cgroup("/kubepods/poduid", CgroupLevel.POD, pod_uid="uid")
    of = cgroup("/c", CgroupLevel.CONTAINER, container_id="id-main")
    summary = summarize(own, of, pods=[pod(record("main"))])
    node, [found] = summary.node, summary.pods
    assert (node.start_time, node.io, node.network, node.fs, node.rlimit) == (STARTED, None, None, None, None)
    assert (found.io, found.network, found.process_stats) == (None, None, None)
    [container] = found.containers
    assert (container.io, container.rootfs) == (None, None)
    assert (container.cpu, container.memory, container.swap) == (found.cpu, found.memory, found.swap)


@pytest.mark.parametrize(
    ("memory", "swap"),
    [
        pytest.param(MEMORY, SwapStats(time=AT, swap_available_bytes=45, swap_usage_bytes=5), id="a limit"),
        pytest.param(
            replace(MEMORY, swap_limit=NO_LIMIT),
            SwapStats(time=AT, swap_available_bytes=0, swap_usage_bytes=5),
            id="without a limit nothing is left",
        ),
        pytest.param(
            None, SwapStats(time=NOW, swap_available_bytes=0, swap_usage_bytes=0), id="without a memory controller"
        ),
    ],
)
def test_in_the_short_form_swap_of_a_container_has_no_gaps(memory, swap):
    own = cgroup("/kubepods/poduid", CgroupLevel.POD, pod_uid="uid", memory=memory)
    of = cgroup("/c", CgroupLevel.CONTAINER, container_id="id-main", memory=memory)
    [found] = summarize(own, of, pods=[pod(record("main"))]).pods
    assert found.containers[0].swap == swap
    [whole] = summarize(own, of, pods=[pod(record("main"))], disks=disks()).pods
    assert whole.containers[0].swap == whole.swap == found.swap


@pytest.mark.parametrize(
    ("limit", "available"),
    [
        pytest.param(200, 120, id="what is left"),
        pytest.param(NO_LIMIT, None, id="no limit"),
        pytest.param((1 << 63) - 4096, None, id="no limit as version 1 writes it"),
        pytest.param(70, (1 << 64) - 10, id="unsigned numbers below zero"),
    ],
)
def test_available_memory_is_what_the_working_set_leaves(limit, available):
    own = cgroup("/p", CgroupLevel.POD, pod_uid="uid", memory=replace(MEMORY, limit=limit))
    [found] = summarize(own, pods=[pod(record("main"))]).pods
    assert found.memory.available_bytes == available


def test_a_cgroup_without_controllers_shows_zeros():
    own = cgroup("/p", CgroupLevel.POD, pod_uid="uid", cpu=None, memory=None)
    [found] = summarize(own, pods=[pod(record("main"))]).pods
    assert found.cpu == CPUStats(time=AT, usage_nano_cores=0, usage_core_nano_seconds=0)
    assert found.memory == MemoryStats(time=AT, working_set_bytes=0)
    assert found.swap is None


def test_a_rate_that_is_not_known_is_left_out():
    own = cgroup("/p", CgroupLevel.POD, pod_uid="uid", cpu=CpuCounters(usage=9))
    [found] = summarize(own, pods=[pod(record("main"))]).pods
    assert found.cpu == CPUStats(time=AT, usage_core_nano_seconds=9, psi=PSIStats())


def test_without_the_gate_there_is_no_pressure():
    pressed = cgroup("/p", CgroupLevel.POD, pod_uid="uid", pressure=CgroupPressure(PSI, PSI, PSI))
    [shown] = summarize(pressed, pods=[pod(record("main"))], disks=disks()).pods
    [hidden] = summarize(pressed, pods=[pod(record("main"))], disks=disks(), has_pressure=False).pods
    assert (shown.cpu.psi, shown.memory.psi, shown.io) == (PSI, PSI, IOStats(time=AT, psi=PSI))
    assert (hidden.cpu.psi, hidden.memory.psi, hidden.io) == (None, None, None)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        pytest.param(pod(record("main", EXITED)), False, id="without a running container it is not shown"),
        pytest.param(pod(record("main"), sandboxes=()), False, id="without a sandbox neither"),
        pytest.param(pod(record("main"), sandboxes=(sandbox(ready=False),)), True, id="a sandbox may have ended"),
    ],
)
def test_which_pods_are_shown(given, shown):
    assert bool(summarize(pods=[given]).pods) is shown


@pytest.mark.parametrize(
    ("ready", "expected"),
    [((False, True), "1"), ((True, True), "0"), ((False, False), "0")],
)
def test_the_newest_ready_sandbox_is_that_of_the_pod(ready, expected):
    found = choose_sandbox([sandbox(each, str(number)) for number, each in enumerate(ready)])
    assert found is not None
    assert found.id == expected


def test_of_two_running_containers_of_a_name_the_newest_is_shown():
    [found] = summarize(pods=[pod(record("main", id_="new"), record("main", id_="old", created=BOOT))]).pods
    assert [each.start_time for each in found.containers] == [NOW]


def test_a_pod_without_a_known_cgroup_is_the_sum_of_its_containers():
    one = cgroup("/a", CgroupLevel.CONTAINER, container_id="id-a", pressure=CgroupPressure(PSI, PSI, PSI))
    two = cgroup("/b", CgroupLevel.CONTAINER, container_id="id-b")
    [found] = summarize(one, two, pods=[pod(record("a"), record("b"))], disks=disks()).pods
    assert found.cpu == CPUStats(time=AT, usage_nano_cores=1000, usage_core_nano_seconds=2000)
    assert (found.memory.working_set_bytes, found.memory.available_bytes) == (160, 240)
    assert found.swap == SwapStats(time=AT, swap_available_bytes=90, swap_usage_bytes=10)
    assert found.io is None


def test_a_container_without_a_known_cgroup_has_the_runtimes_numbers():
    known = RuntimeNumbers(cpu=CPUStats(time=AT, usage_core_nano_seconds=4))
    summary = summarize(pods=[pod(record("a"), record("b"))], unknown={"id-a": known}, disks=disks())
    a, b = summary.pods[0].containers
    assert a.cpu == known.cpu
    assert b.cpu == CPUStats(time=NOW, usage_nano_cores=0, usage_core_nano_seconds=0)
    assert a.memory == MemoryStats(time=NOW, usage_bytes=0, working_set_bytes=0, rss_bytes=0)
    assert a.swap == SwapStats(time=NOW, swap_available_bytes=0, swap_usage_bytes=0)
    assert a.io == IOStats(time=NOW)
    assert summary.pods[0].process_stats is None


def test_only_running_containers_without_a_cgroup_are_asked_for():
    snapshot = StatsSnapshot(taken_at=NOW, cgroups=(cgroup("/a", CgroupLevel.CONTAINER, container_id="id-a"),))
    given = pod(record("a"), record("b"), record("c", EXITED))
    assert unknown_containers(snapshot, {"uid": given}) == {"id-b"}


def test_disks_network_and_processes_of_a_pod():
    eth0 = InterfaceCounters("eth0", 1, 2, 3, 4, 5, 6, 7, 8)
    other = InterfaceCounters("net1", 10, 0, 0, 0, 0, 0, 0, 0)
    main = cgroup("/a", CgroupLevel.CONTAINER, container_id="id-a", processes=ProcessCounters(processes=3))
    network = cgroup("/s", CgroupLevel.SANDBOX, container_id="sandbox", network=(eth0, other))
    volume = VolumeStats(time=AT, name="data")
    measured = PodDisk(containers={"id-a": ContainerDisk(rootfs=FS, logs=FS)}, volumes=(volume,), ephemeral_storage=FS)
    [found] = summarize(main, network, pods=[pod(record("a"))], disks=disks(uid=measured)).pods
    assert (found.network.name, found.network.rx_bytes, found.network.tx_errors) == ("eth0", 1, 7)
    assert [(each.name, each.rx_bytes) for each in found.network.interfaces] == [("eth0", 1), ("net1", 10)]
    assert (found.volume, found.ephemeral_storage) == ((volume,), FS)
    assert (found.containers[0].rootfs, found.containers[0].logs) == (FS, FS)
    assert found.process_stats == ProcessStats(process_count=3)


def test_without_eth0_no_interface_is_the_default_one():
    node = summarize(disks=disks()).node
    assert node.network == NetworkStats(time=AT, name="", interfaces=node.network.interfaces)
    assert [each.name for each in node.network.interfaces] == ["ens3"]


def test_system_containers_are_those_whose_cgroup_is_there():
    system = SystemCgroups(kubelet="/agent", runtime="/gone", misc="", pods="/kubepods")
    old = replace(cgroup("/kubepods", CgroupLevel.PODS), created_at=BOOT - timedelta(days=9))
    summary = summarize(cgroup("/agent", CgroupLevel.SYSTEM), old, system=system)
    assert [(each.name, each.start_time) for each in summary.node.system_containers] == [
        ("kubelet", NOW),
        ("pods", BOOT),
    ]
