from datetime import timedelta

import pytest

from klet.host.errors import MalformedFile
from klet.host.kmsg import KernelMessage, OomParser, parse_record

IN_POD = "/kubepods/burstable/pod1/c1"
MEMCG = [
    "sh invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    (
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,oom_memcg=/kubepods/burstable/pod1,"
        f"task_memcg={IN_POD},task=a, b,pid=20022,uid=0"
    ),
    "Memory cgroup out of memory: Killed process 20022 (a, b) total-vm:26852kB, anon-rss:16132kB, UID:0 pgtables:80kB",
]
SYSTEM = [
    "stress invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0",
    (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        f"task_memcg={IN_POD},task=stress,pid=77,uid=0"
    ),
    "Out of memory: Killed process 77 (stress) total-vm:100kB, anon-rss:50kB, UID:0 pgtables:1kB oom_score_adj:1000",
]
LEGACY = [
    "memorymonster invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0",
    "Task in /mem2 killed as a result of limit of /mem",
    "Memory cgroup out of memory: Kill process 13536 (memorymonster) score 1047 or sacrifice child",
]


def message(text, *, facility=0):
    return KernelMessage(level=3, facility=facility, sequence=1, since_boot=timedelta(seconds=5), text=text)


def kills(*texts, facility=0):
    parser = OomParser()
    found = [parser.feed(message(text, facility=facility)) for text in texts]
    return [
        (kill.pid, kill.process, kill.memcg, kill.process_memcg, kill.is_system) for kill in found if kill is not None
    ]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(
            MEMCG, [(20022, "a, b", "/kubepods/burstable/pod1", IN_POD, False)], id="a cgroup reached its limit"
        ),
        pytest.param(SYSTEM, [(77, "stress", "/", IN_POD, True)], id="the machine ran out of memory"),
        pytest.param(LEGACY, [(13536, "memorymonster", "/mem", "/mem2", False)], id="an old kernel"),
        pytest.param(MEMCG[2:], [(20022, "a, b", "", "", False)], id="the line with the cgroup was lost"),
        pytest.param(SYSTEM[2:], [(77, "stress", "/", "", True)], id="only the last line of a system kill was seen"),
        pytest.param(MEMCG[:2], [], id="nothing was killed yet"),
        pytest.param(
            [
                "oom-kill:constraint=C,oom_memcg=/a,task_memcg=/a/x,task=y,pid=1,uid=1,z,task=t,pid=7,uid=0",
                "Memory cgroup out of memory: Killed process 7 (t) total-vm:1kB",
            ],
            [(7, "t", "/a", "/a/x,task=y,pid=1,uid=1,z", False)],
            id="a cgroup is called like the rest of the line",
        ),
        pytest.param(
            ["Out of memory (oom_kill_allocating_task): Killed process 5 (x) total-vm:1kB"], [(5, "x", "/", "", True)],
            id="the process that asked is killed",
        ),
        pytest.param(["systemd: Killed process 5 (x) with signal SIGKILL."], [], id="another kind of kill"),
        pytest.param(["eth0: link up"], [], id="another message"),
    ],
)  # fmt: skip
def test_kills(texts, expected):
    assert kills(*texts) == expected


def test_two_kills_of_one_cgroup():
    second = MEMCG[2].replace("20022", "20023")
    assert [kill[0] for kill in kills(*MEMCG, second)] == [20022, 20023]


def test_a_kill_does_not_borrow_the_cgroup_of_the_one_before():
    assert kills(*MEMCG, SYSTEM[0], SYSTEM[2])[1] == (77, "stress", "/", "", True)


def details(*texts):
    parser = OomParser()
    found = [parser.feed(message(text)) for text in texts]
    return [(kill.pid, kill.memcg, kill.constraint, kill.uid, kill.limit) for kill in found if kill is not None]


USAGE = "memory: usage 65536kB, limit 65536kB, failcnt 12"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(
            [MEMCG[0], USAGE, *MEMCG[1:]],
            [(20022, "/kubepods/burstable/pod1", "CONSTRAINT_MEMCG", 0, 64 << 20)],
            id="a limit, with all lines",
        ),
        pytest.param(SYSTEM, [(77, "/", "CONSTRAINT_NONE", 0, None)], id="the machine"),
        pytest.param(LEGACY, [(13536, "/mem", "", None, None)], id="an old kernel says less"),
        pytest.param(
            [MEMCG[0], MEMCG[1], MEMCG[2].replace("UID:0", "UID:1000")],
            [(20022, "/kubepods/burstable/pod1", "CONSTRAINT_MEMCG", 1000, None)],
            id="the user of the last line counts",
        ),
        pytest.param(
            [*MEMCG, "Memory cgroup out of memory: Killed process 5 (x) total-vm:1kB, UID:7 pgtables:1kB"],
            [(20022, "/kubepods/burstable/pod1", "CONSTRAINT_MEMCG", 0, None), (5, "", "", 7, None)],
            id="the kernel left out the lines of the second kill: its cgroup is unknown",
        ),
        pytest.param(["memory: usage 1kB, limit xkB, failcnt 1", *MEMCG[1:]],
                     [(20022, "/kubepods/burstable/pod1", "CONSTRAINT_MEMCG", 0, None)], id="no number"),
        pytest.param(["memory: usage 1kB, limit " + "9" * 5000 + "kB", *MEMCG[1:]],
                     [(20022, "/kubepods/burstable/pod1", "CONSTRAINT_MEMCG", 0, None)], id="too long a number"),
        pytest.param(["Memory cgroup out of memory: Killed process " + "9" * 5000 + " (x) a"], [], id="too long a pid"),
    ],
)  # fmt: skip
def test_what_is_known_of_a_kill(texts, expected):
    assert details(*texts) == expected


def test_all_processes_of_a_cgroup_that_are_killed_together():
    parser = OomParser()
    lines = [
        *MEMCG,
        f"Tasks in {IN_POD} are going to be killed due to memory.oom.group set",
        "Memory cgroup out of memory: Killed process 20023 (b) total-vm:1kB, UID:0",
        "Memory cgroup out of memory: Killed process 20024 (c) total-vm:1kB, UID:0",
    ]
    found = [kill for text in lines if (kill := parser.feed(message(text))) is not None]
    assert [(kill.pid, kill.process_memcg) for kill in found] == [(20022, IN_POD), (20023, IN_POD), (20024, IN_POD)]


def test_a_long_line_is_parsed_in_linear_time():
    parser = OomParser()
    for text in ("oom-kill:constraint=" + ",pid=1" * 1_000, "Killed process 1 (" * 400, "Task in " * 1_000):
        assert parser.feed(message(text)) is None


def test_a_process_cannot_forge_a_kill():
    assert kills(*SYSTEM, facility=1) == []


def test_a_record():
    record = "14,339,5140900,-,caller=T1;Hello \\x0a world; again\n SUBSYSTEM=acpi\n DEVICE=+acpi:PNP0A03:00\n"
    assert parse_record(record) == KernelMessage(
        level=6, facility=1, sequence=339, since_boot=timedelta(microseconds=5140900), text="Hello \n world; again"
    )


@pytest.mark.parametrize("record", ["", "x", "1,2,3", "1,2;text", "a,b,c,-;text"])
def test_a_malformed_record(record):
    with pytest.raises(MalformedFile, match="kernel message"):
        parse_record(record)
