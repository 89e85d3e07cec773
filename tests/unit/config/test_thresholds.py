from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.quantity import Quantity
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError
from klet.config.thresholds import Amount, Signal, Threshold, parse_thresholds

TEN_PERCENT = 0.10000000149011612
"""A tenth as a 32-bit float."""


def amount(text):
    return Amount(Quantity.parse(text))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, (), id="none"),
        pytest.param({"eviction_hard": {"memory.available": "100Mi"}},
                     (Threshold(Signal.MEMORY_AVAILABLE, amount("100Mi")),), id="an amount"),
        pytest.param({"eviction_hard": {"nodefs.available": "10%"}},
                     (Threshold(Signal.NODEFS_AVAILABLE, Amount(share=TEN_PERCENT)),), id="a share"),
        pytest.param({"eviction_hard": {"nodefs.available": "0%", "imagefs.available": "100%"}}, (),
                     id="nothing and everything switch off"),
        pytest.param({"eviction_hard": {"nodefs.available": "0.0%", "imagefs.available": "100.0%"}},
                     (Threshold(Signal.IMAGEFS_AVAILABLE, Amount(share=1.0)),
                      Threshold(Signal.NODEFS_AVAILABLE, Amount(share=0.0))), id="but only written so"),
        pytest.param({"eviction_soft": {"pid.available": "100"},
                      "eviction_soft_grace_period": {"pid.available": "30s"}},
                     (Threshold(Signal.PID_AVAILABLE, amount("100"), timedelta(seconds=30)),), id="a soft one"),
        pytest.param({"eviction_hard": {"imagefs.inodesFree": "5k"}, "eviction_minimum_reclaim":
                      {"imagefs.inodesFree": "1k"}},
                     (Threshold(Signal.IMAGEFS_INODES_FREE, amount("5k"), minimum_reclaim=amount("1k")),),
                     id="a minimum to reclaim"),
        pytest.param({"eviction_hard": {"memory.available": "1Gi"}, "enforce_node_allocatable": ("pods",),
                      "eviction_minimum_reclaim": {"memory.available": "10%"}},
                     (Threshold(Signal.MEMORY_AVAILABLE, amount("1Gi"), minimum_reclaim=Amount(share=TEN_PERCENT)),
                      Threshold(Signal.ALLOCATABLE_MEMORY_AVAILABLE, amount("1Gi"),
                                minimum_reclaim=Amount(share=TEN_PERCENT))), id="a twin for the pods' memory"),
        pytest.param({"eviction_soft": {"memory.available": "1Gi"}, "enforce_node_allocatable": ("pods",),
                      "eviction_soft_grace_period": {"memory.available": "1m"}},
                     (Threshold(Signal.MEMORY_AVAILABLE, amount("1Gi"), timedelta(minutes=1)),),
                     id="no twin of a soft one"),
    ],
)  # fmt: skip
def test_parse_thresholds(fields, expected):
    assert parse_thresholds(replace(KubeletConfiguration(), **fields)) == expected


def test_no_twin_when_allocatable_ignores_eviction():
    config = KubeletConfiguration(eviction_hard={"memory.available": "1Gi"}, enforce_node_allocatable=("pods",))
    (threshold,) = parse_thresholds(config, ignore_allocatable=True)
    assert threshold.is_hard


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"eviction_hard": {"x": "1"}}, "unsupported eviction signal x"),
        (
            {"eviction_hard": {"memory.available": "-1%"}},
            "eviction percentage threshold memory.available must be >= 0%: -1%",
        ),
        (
            {"eviction_hard": {"memory.available": "101%"}},
            "eviction percentage threshold memory.available must be <= 100%: 101%",
        ),
        ({"eviction_hard": {"memory.available": "x%"}}, 'strconv.ParseFloat: parsing "x": invalid syntax'),
        ({"eviction_hard": {"memory.available": "0"}}, "eviction threshold memory.available must be positive: 0"),
        (
            {"eviction_hard": {"memory.available": "x"}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {"eviction_soft": {"memory.available": "1Gi"}},
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        (
            {"eviction_soft_grace_period": {"memory.available": "-1s"}},
            "invalid eviction grace period specified: -1s, must be a positive value",
        ),
        ({"eviction_soft_grace_period": {"memory.available": "1"}}, 'time: missing unit in duration "1"'),
        (
            {"eviction_minimum_reclaim": {"memory.available": "0%"}},
            "eviction percentage minimum reclaim memory.available must be positive: 0%",
        ),
        (
            {"eviction_minimum_reclaim": {"memory.available": "-1"}},
            "negative eviction minimum reclaim specified for memory.available",
        ),
    ],
)
def test_mistake(fields, message):
    (field,) = fields
    with pytest.raises(ConfigError) as caught:
        parse_thresholds(replace(KubeletConfiguration(), **fields))
    place = f"{field.replace('_', ' ').title().replace(' ', '').replace('E', 'e', 1)} (--{field.replace('_', '-')})"
    assert str(caught.value) == f"{message}: see {place}"
