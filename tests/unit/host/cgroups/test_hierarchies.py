"""Both hierarchies over plain directories: what needs no kernel to be seen."""

import pytest
from msgspec.structs import replace

from klet.host.cgroups.discover import find_hierarchy, find_hugepage_sizes
from klet.host.cgroups.layout import CgroupMode
from klet.host.cgroups.resources import CgroupResources
from klet.host.cgroups.v1 import V1Hierarchy
from klet.host.cgroups.v2 import V2Hierarchy
from klet.host.errors import CgroupError, CgroupMissing, FileError

MIB = 1 << 20


def plant(directory, *names, text=""):
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text(text)


@pytest.fixture
def v1(tmp_path):
    plant(tmp_path / "cpu/pod", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us")
    plant(tmp_path / "hugetlb/pod", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.rsvd.limit_in_bytes")
    plant(tmp_path / "hugetlb/pod", "hugetlb.1GB.limit_in_bytes")
    controllers = {name: tmp_path / name for name in ("cpu", "hugetlb")}
    return V1Hierarchy(controllers=controllers, hugepage_sizes=(2 * MIB, 1024 * MIB))


@pytest.fixture
def v2(tmp_path):
    plant(tmp_path, "cgroup.controllers", text="cpuset cpu io memory hugetlb pids\n")
    plant(tmp_path, "cgroup.subtree_control")
    plant(tmp_path / "pod", "pids.max", "memory.max", "cpu.weight", "cpu.max", "cpuset.cpus", "memory.min", "io.weight")
    plant(tmp_path / "pod", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max")
    plant(tmp_path / "pod", "cgroup.controllers", text="cpuset cpu memory hugetlb pids\n")
    return V2Hierarchy(root=tmp_path, hugepage_sizes=(2 * MIB,))


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_one_read_shows_whether_a_cgroup_exists(request, version):
    hierarchy = request.getfixturevalue(version)
    assert (hierarchy.has("/pod"), hierarchy.has("/other")) == (True, False)


def test_a_machine_without_any_controller_lacks_no_cgroup():
    hierarchy = V1Hierarchy(controllers={})
    assert hierarchy.has("/pod")
    assert hierarchy.check("/pod") == ""


def test_version_1_reports_a_missing_controller_once_and_goes_on(v1, tmp_path, caplog):
    for _ in range(2):
        v1.write("/pod", CgroupResources(memory_limit=MIB, cpu_shares=7))
    assert (tmp_path / "cpu/pod/cpu.shares").read_text() == "7"
    assert [record.controller for record in caplog.records] == ["memory"]


def test_version_1_writes_every_page_size_of_the_host(v1, tmp_path):
    v1.write("/pod", CgroupResources(hugepages={2 * MIB: 4 * MIB}))
    pod = tmp_path / "hugetlb/pod"
    assert (pod / "hugetlb.2MB.limit_in_bytes").read_text() == str(4 * MIB)
    assert (pod / "hugetlb.2MB.rsvd.limit_in_bytes").read_text() == str(4 * MIB)
    assert (pod / "hugetlb.1GB.limit_in_bytes").read_text() == "0"


def test_version_1_without_a_controller_reads_nothing_of_it(v1):
    usage = v1.usage("/pod")
    assert (usage.cpu, usage.memory, usage.pids) == (None, None, None)
    assert v1.children("/") == {"pod"}


def test_version_1_names_the_missing_paths(v1, tmp_path):
    assert v1.check("/pod") == ""
    assert v1.check("/other") == f"has some missing paths: {tmp_path}/cpu/other, {tmp_path}/hugetlb/other"


def test_version_1_takes_back_what_it_made_when_a_part_fails(v1, tmp_path):
    (tmp_path / "hugetlb/a").write_text("in the way")
    with pytest.raises(CgroupError, match="cannot make cgroup"):
        v1.create("/a/b", CgroupResources())
    assert not (tmp_path / "cpu/a").exists()


def test_version_1_fills_the_cpuset_before_it_makes_the_rest(tmp_path):
    for name in ("cpu", "cpuset"):
        plant(tmp_path / name)
    plant(tmp_path / "cpuset", "cpuset.cpus", text="0-1")
    hierarchy = V1Hierarchy(controllers={name: tmp_path / name for name in ("cpu", "cpuset")})
    with pytest.raises(FileError, match=r"cpuset\.cpus"):
        hierarchy.create("/new", CgroupResources())
    assert not (tmp_path / "cpu/new").exists()


def test_version_2_writes_what_is_given(v2, tmp_path):
    v2.write(
        "/pod",
        CgroupResources(
            cpu_shares=1024, cpu_quota=20000, memory_limit=MIB, pids_limit=9, cpuset="0-1", memory_min=5,
            hugepages={2 * MIB: 6 * MIB}, unified={"io.weight": "50"},
        ),
    )  # fmt: skip
    written = {path.name: path.read_text() for path in (tmp_path / "pod").iterdir()}
    assert written == {
        "pids.max": "9", "memory.max": str(MIB), "cpu.weight": "39", "cpu.max": "20000 100000", "cpuset.cpus": "0-1",
        "memory.min": "5", "io.weight": "50", "hugetlb.2MB.max": str(6 * MIB), "hugetlb.2MB.rsvd.max": str(6 * MIB),
        "cgroup.controllers": "cpuset cpu memory hugetlb pids\n",
    }  # fmt: skip


def test_version_2_writes_no_quota_as_max(v2, tmp_path):
    v2.write("/pod", CgroupResources(cpu_quota=0, cpu_period=50000))
    assert (tmp_path / "pod/cpu.max").read_text() == "max 50000"
    v2.write("/pod", CgroupResources(cpu_quota=-1))
    assert (tmp_path / "pod/cpu.max").read_text() == "max 100000"


def test_version_2_leaves_alone_what_is_not_given(v2, tmp_path):
    v2.write("/pod", CgroupResources(memory_limit=0, pids_limit=0, cpu_shares=0))
    assert (tmp_path / "pod/memory.max").read_text() == ""
    assert (tmp_path / "pod/cpu.max").read_text() == ""


def test_version_2_stops_at_the_first_error(v2, tmp_path):
    (tmp_path / "pod/memory.max").unlink()
    with pytest.raises(FileError, match=r"memory\.max"):
        v2.write("/pod", CgroupResources(memory_limit=MIB, cpu_shares=7))
    assert (tmp_path / "pod/cpu.weight").read_text() == ""


def test_version_2_names_the_missing_controllers(v2, tmp_path):
    assert v2.check("/pod") == ""
    (tmp_path / "pod/cgroup.controllers").write_text("cpu memory\n")
    assert v2.check("/pod") == "has some missing controllers: cpuset, hugetlb, pids"
    assert "No such file" in v2.check("/other")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        pytest.param("domain invalid", "it is in an invalid state", id="an invalid domain"),
        pytest.param("threaded", "it is in threaded mode", id="a threaded cgroup"),
    ],
)
def test_version_2_refuses_a_cgroup_that_cannot_hold_memory(v2, tmp_path, kind, message):
    (tmp_path / "pod/cgroup.type").write_text(f"{kind}\n")
    with pytest.raises(CgroupError, match=message):
        v2.create("/pod", CgroupResources(memory_limit=MIB))
    v2.create("/pod", CgroupResources(pids_limit=1))
    assert (tmp_path / "pod/cgroup.type").read_text().strip() == "threaded"


def test_version_2_switches_controllers_on_along_the_path(v2, tmp_path):
    v2.create("/pod/deeper", CgroupResources())
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpuset +cpu +io +memory +hugetlb +pids"
    assert (tmp_path / "pod/deeper").is_dir()


def test_version_2_without_a_value_reads_nothing(v2):
    values = v2.read("/missing")
    assert (values.cpu_shares, values.cpu_quota, values.memory_limit) == (None, None, None)


def test_version_1_reads_what_it_writes(v1, tmp_path):
    plant(tmp_path / "cpuset/pod", "cpuset.cpus")
    plant(tmp_path / "cpu/pod", "cpu.cfs_quota_us", "cpu.cfs_period_us", text="0")
    controllers = {name: tmp_path / name for name in ("cpu", "cpuset", "hugetlb")}
    hierarchy = V1Hierarchy(controllers=controllers, hugepage_sizes=(2 * MIB, 1024 * MIB))
    hierarchy.write("/pod", CgroupResources(cpu_shares=7, cpuset="0-1", hugepages={2 * MIB: 4 * MIB}))
    values = hierarchy.read("/pod")
    assert (values.cpu_shares, values.cpuset, values.hugepages) == (7, "0-1", {2 * MIB: 4 * MIB, 1024 * MIB: 0})


def test_version_2_reads_what_it_writes(v2):
    wanted = CgroupResources(
        cpu_shares=2, cpuset="0-1", memory_limit=MIB, memory_min=4096, pids_limit=7, hugepages={2 * MIB: 4 * MIB}
    )
    v2.write("/pod", wanted)
    assert replace(v2.read("/pod"), cpu_quota=None, cpu_period=None) == wanted


def test_version_1_moves_a_process_in_those_trees_where_it_is_in_the_source(tmp_path):
    for name, pids in {"cpu": "7", "devices": "7\n8\n0", "memory": "8"}.items():
        plant(tmp_path / name, "cgroup.procs", text=pids)
        plant(tmp_path / name / "target", "cgroup.procs")
    hierarchy = V1Hierarchy(controllers={name: tmp_path / name for name in ("cpu", "devices", "memory")})
    assert hierarchy.members("/") == {7, 8}
    hierarchy.attach("/target", 7, source="/")
    read = {name: (tmp_path / name / "target/cgroup.procs").read_text() for name in ("cpu", "devices", "memory")}
    assert read == {"cpu": "7", "devices": "7", "memory": ""}
    hierarchy.attach("/target", 7)
    assert (tmp_path / "memory/target/cgroup.procs").read_text() == "7"


def test_version_1_lists_no_processes_without_the_controller_that_has_them_all(v1):
    with pytest.raises(CgroupError, match="the cgroup controller devices is not mounted"):
        v1.members("/")


def test_version_2_moves_a_process_if_it_is_in_the_source(v2, tmp_path):
    plant(tmp_path, "cgroup.procs", text="7\n")
    plant(tmp_path / "target", "cgroup.procs")
    v2.attach("/target", 8, source="/")
    assert (tmp_path / "target/cgroup.procs").read_text() == ""
    v2.attach("/target", 7, source="/")
    assert (tmp_path / "target/cgroup.procs").read_text() == "7"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param({"cpu": "/a", "name=systemd": "/a"}, True, id="in every tree"),
        pytest.param({"cpu": "/a", "name=systemd": "/b"}, False, id="not in that of systemd"),
        pytest.param({"cpu": "/a", "name=systemd": "/a", "": "/b"}, True, id="version 2 beside it does not count"),
    ],
)
def test_version_1_knows_whether_a_process_is_in_a_cgroup(tmp_path, own, expected):
    hierarchy = V1Hierarchy(controllers={name: tmp_path / name for name in ("cpu", "systemd")})
    assert hierarchy.holds("/a", own) is expected


def test_version_2_knows_whether_a_process_is_in_a_cgroup(v2):
    assert v2.holds("/a", {"": "/a"})
    assert not v2.holds("/a", {"": "/"})


def test_the_mount_table_decides(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(f"30 23 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    assert find_hierarchy(mountinfo=table, root=tmp_path, hugepages=tmp_path).mode is CgroupMode.UNIFIED
    table.write_text(f"30 23 0:26 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu\n")
    assert find_hierarchy(mountinfo=table, root=tmp_path, hugepages=tmp_path).mode is CgroupMode.V1
    table.write_text("")
    with pytest.raises(CgroupMissing, match="no cgroup filesystem is mounted"):
        find_hierarchy(mountinfo=table, root=tmp_path, hugepages=tmp_path)


def test_page_sizes_of_the_host(tmp_path):
    for name in ("hugepages-2048kB", "hugepages-1048576kB", "other"):
        (tmp_path / name).mkdir()
    assert find_hugepage_sizes(tmp_path) == (2 * MIB, 1024 * MIB)
    assert find_hugepage_sizes(tmp_path / "nothing") == ()
