"""The structs of the summary against upstream's schema, and how they are written."""

import json
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from klet.api import stats
from klet.api.stats import CPUStats, NodeStats, Summary, encode

SCHEMA = json.loads((Path(__file__).parents[2] / "data/stats_summary_schema.json").read_text())["types"]
STRUCTS = {
    "Summary": stats.Summary,
    "Node": stats.NodeStats,
    "Pod": stats.PodStats,
    "Container": stats.ContainerStats,
    "PodRef": stats.PodReference,
    "CPU": stats.CPUStats,
    "Memory": stats.MemoryStats,
    "IO": stats.IOStats,
    "PSI": stats.PSIStats,
    "PSIData": stats.PSIData,
    "Swap": stats.SwapStats,
    "Network": stats.NetworkStats,
    "Interface": stats.InterfaceStats,
    "Fs": stats.FsStats,
    "Volume": stats.VolumeStats,
    "PVCRef": stats.PVCReference,
    "VolumeHealth": stats.VolumeHealthStats,
    "Runtime": stats.RuntimeStats,
    "Rlimit": stats.RlimitStats,
    "ProcessStats": stats.ProcessStats,
    "Accelerator": stats.AcceleratorStats,
    "UserDefinedMetric": stats.UserDefinedMetric,
}
SCALARS = {int: {"uint64", "int64"}, float: {"float64"}, str: {"string"}, bool: {"bool"}, datetime: {"time"}}
AT = datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)


def kinds(annotation) -> set[str]:
    """The schema's words for a type."""
    origin = typing.get_origin(annotation)
    if origin in {types.UnionType, typing.Union}:
        return set().union(*(kinds(each) for each in typing.get_args(annotation) if each is not type(None)))
    if origin is tuple:
        return {f"[{kind}]" for kind in kinds(typing.get_args(annotation)[0])}
    if origin is Mapping:
        return {"map[string]string"}
    return SCALARS.get(annotation) or {name for name, struct in STRUCTS.items() if struct is annotation}


def test_every_type_has_a_struct():
    assert STRUCTS.keys() == SCHEMA.keys()


@pytest.mark.parametrize("name", SCHEMA)
def test_a_struct_has_the_fields_of_the_schema_in_their_order(name):
    struct = STRUCTS[name]
    fields = msgspec.structs.fields(struct)
    assert [field.encode_name for field in fields] == list(SCHEMA[name])
    for field in fields:
        assert SCHEMA[name][field.encode_name].rstrip("!") in kinds(field.type), field.name
        omits = struct.__struct_config__.omit_defaults and not field.required
        assert omits != SCHEMA[name][field.encode_name].endswith("!"), field.name


def test_it_is_indented_by_one_space_with_whole_seconds():
    node = NodeStats(node_name="node", start_time=None, cpu=CPUStats(time=AT, usage_nano_cores=0))
    assert encode(Summary(node=node, pods=())).decode() == (
        '{\n "node": {\n  "nodeName": "node",\n  "startTime": null,\n  "cpu": {\n   "time": "2026-01-02T03:04:05Z",\n'
        '   "usageNanoCores": 0\n  }\n },\n "pods": []\n}'
    )
