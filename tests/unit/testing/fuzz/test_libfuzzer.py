"""libFuzzer's options and what it prints."""

from pathlib import Path

import pytest

from klet.testing.fuzz.isolated import Guard
from klet.testing.fuzz.libfuzzer import (
    LibfuzzerPlan,
    LibfuzzerStatus,
    build_options,
    describe_artifact,
    find_artifact,
    read_status,
)
from klet.testing.fuzz.target import Limits

BEFORE = LibfuzzerStatus(10, 20, 30)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "#4096\tpulse  cov: 57 ft: 60 corp: 12/345b lim: 4096 exec/s: 100 rss: 120Mb",
            LibfuzzerStatus(4096, 57, 12),
            id="a pulse",
        ),
        pytest.param(
            "#7\tNEW    cov: 57 ft: 60 corp: 13/2Kb lim: 4096 exec/s: 1 rss: 1Mb L: 3/9 MS: 1 Custom-",
            LibfuzzerStatus(7, 57, 13),
            id="a new input",
        ),
        pytest.param("stat::number_of_executed_units: 500", LibfuzzerStatus(500, 20, 30), id="the end"),
        pytest.param("Done 501 runs in 3 second(s)", LibfuzzerStatus(501, 20, 30), id="the end in words"),
        pytest.param("INFO: Instrumenting klet.errors", BEFORE, id="something else"),
        pytest.param("#1", BEFORE, id="a half line"),
    ],
)
def test_how_far_it_is(line, expected):
    assert read_status(line, BEFORE) == expected


def test_options_name_every_limit():
    options = build_options(
        LibfuzzerPlan(seed=0, executions=5), Limits(input_size=99), Guard(seconds=3, memory=7 << 20), Path("/a")
    )
    wanted = {"-seed=1", "-runs=5", "-max_len=99", "-timeout=3", "-rss_limit_mb=7", "-artifact_prefix=/a/"}
    assert wanted <= set(options)
    assert not any(option.startswith("-max_total_time") for option in options)
    assert "-max_total_time=1" in build_options(LibfuzzerPlan(seed=1, seconds=0.1), Limits(), Guard(), Path("/a"))


@pytest.mark.parametrize("seed", [0, 1, (1 << 32) - 2, (1 << 32) - 1, 1 << 64, -1])
def test_every_seed_is_one(seed):
    """libFuzzer takes 0 for none, and 32 bits."""
    (option,) = [
        each for each in build_options(LibfuzzerPlan(seed=seed), Limits(), Guard(), Path("/a")) if "-seed=" in each
    ]
    assert 0 < int(option.removeprefix("-seed=")) < 1 << 32


@pytest.mark.parametrize(
    ("name", "flaw"),
    [
        ("timeout-00ff", "did not end within 20 s, after others"),
        ("oom-00ff", "took more than 1024 MiB of memory, after others"),
        ("crash-00ff", "ended the process, after others"),
    ],
)
def test_what_ended_the_process(name, flaw):
    assert find_artifact(["slow-unit-1", name, "other"]) == name
    assert describe_artifact(name, Guard()) == flaw


def test_a_slow_input_has_ended_nothing():
    assert find_artifact(["slow-unit-1"]) is None
