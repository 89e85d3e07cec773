from klet.host.cgroups.usage import (
    CpuUsage,
    build_cpu_v1,
    build_cpu_v2,
    build_memory_v1,
    build_memory_v2,
    parse_flat,
    parse_limit,
)

STAT_V2 = "anon 100\nfile 60\nfile_mapped 9\ninactive_file 20\npgfault 7\npgmajfault 3\nslab strange\n"
STAT_V1 = "cache 1\nrss 2\ntotal_cache 60\ntotal_rss 100\ntotal_inactive_file 20\ntotal_mapped_file 9\ntotal_swap 5\n"


def test_flat_files_skip_what_is_no_number():
    assert parse_flat(STAT_V2)["anon"] == 100
    assert "slab" not in parse_flat(STAT_V2)


def test_max_is_no_limit():
    assert parse_limit("max\n") is None
    assert parse_limit("12\n") == 12


def test_cpu_of_version_2_is_in_nanoseconds():
    stat = parse_flat("usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 9\nnr_throttled 4\nthrottled_usec 8\n")
    assert build_cpu_v2(stat) == CpuUsage(
        total=5000, user=3000, system=2000, periods=9, throttled_periods=4, throttled=8000
    )


def test_cpu_of_version_1_turns_ticks_into_nanoseconds():
    stat = {"nr_periods": 1, "nr_throttled": 2, "throttled_time": 3}
    usage = build_cpu_v1(usage=77, times={"user": 2, "system": 1}, stat=stat, ticks_per_second=100)
    assert usage == CpuUsage(total=77, user=20_000_000, system=10_000_000, periods=1, throttled_periods=2, throttled=3)


def test_the_working_set_leaves_inactive_file_pages_out():
    usage = build_memory_v2(parse_flat(STAT_V2), current=150, swap=4, limit=1000)
    assert (usage.usage, usage.working_set, usage.rss, usage.cache) == (150, 130, 100, 60)
    assert (usage.mapped_file, usage.swap, usage.page_faults, usage.major_page_faults, usage.limit) == (
        9,
        4,
        7,
        3,
        1000,
    )


def test_the_working_set_is_never_negative():
    assert build_memory_v2({"inactive_file": 20}, current=10, swap=None, limit=None).working_set == 0


def test_the_root_of_version_2_adds_up_its_usage():
    assert build_memory_v2(parse_flat(STAT_V2), current=None, swap=None, limit=None).usage == 160


def test_memory_of_version_1_counts_the_children():
    usage = build_memory_v1(parse_flat(STAT_V1), usage=150, limit=9223372036854771712)
    assert (usage.working_set, usage.rss, usage.cache, usage.mapped_file, usage.swap) == (130, 100, 60, 9, 5)
    assert usage.limit is None


def test_memory_of_version_1_without_hierarchy_is_the_cgroup_alone():
    usage = build_memory_v1(parse_flat(STAT_V1), usage=150, limit=4096, hierarchical=False)
    assert (usage.rss, usage.cache, usage.limit) == (2, 1, 4096)
