"""Every field, flag and rule of the table in tests/data, one case each.

Which of them there are, with their types, is upstream's data; test_upstream_settings.py compares the defaults.
"""

import json
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from klet.api.times import Duration
from klet.config.command_line import flag_mode_configuration
from klet.config.configuration import KubeletConfiguration
from klet.config.configuration_flags import CONFIGURATION_FLAGS, override_configuration
from klet.config.errors import ConfigError
from klet.config.flags import KUBELET_FLAGS, build_kubelet_flags
from klet.config.flagset import FlagTarget, parse_flags
from klet.config.gates import resolve_gates
from klet.config.help import ALL_FLAGS
from klet.config.validation import validate_configuration

DATA = Path(__file__).parents[2] / "data"
TABLE = json.loads((DATA / "kubelet_configuration.json").read_text())
UPSTREAM = json.loads((DATA / "upstream_settings.json").read_text())
FIELDS = TABLE["fields"]
ZERO = {
    "bool": False,
    "int32": 0,
    "int64": 0,
    "uint32": 0,
    "float64": 0.0,
    "string": "",
    "v1.Duration": "0s",
    "v1.TimeOrMetaDuration": "0s",
    "resource.QuantityValue": "0",
    "map[string]string": {},
    "map[string][]string": {},
    "map[string]bool": {},
}
WRONG = {
    "bool": "yes",
    "string": 7,
    "v1.Duration": 7,
    "v1.TimeOrMetaDuration": [],  # a number is right
    "resource.QuantityValue": True,
    "map[string]string": [],
    "map[string][]string": "x",
    "map[string]bool": {"EventedPLEG": "on"},
}
RANGES = {"int32": 2**31, "int64": 2**63, "uint32": 2**32}


def type_of(row):
    return UPSTREAM["fields"][row["field"]]["type"]


def zero_of(row):
    return ZERO.get(type_of(row), [])


@pytest.fixture(scope="module")
def defaults(load):
    return load({})


def rows(condition=None):
    return [pytest.param(row, id=row["field"]) for row in FIELDS if condition is None or condition(row)]


def gates_of(row):
    return row.get("gates", {})


@pytest.mark.parametrize("row", rows())
def test_field_is_read_from_a_file(row, load, read_wire):
    config = load({**row.get("beside", {}), row["field"]: row["sample"]}, gates_of(row))
    assert read_wire(config, row["field"]) == row["sample"]


@pytest.mark.parametrize("row", rows())
def test_null_counts_as_unset(row, load, read_wire, defaults):
    assert read_wire(load({row["field"]: None}), row["field"]) == read_wire(defaults, row["field"])


@pytest.mark.parametrize("row", rows(lambda row: "keepsZero" in row or "zero" in row))
def test_explicit_zero(row, load, read_wire, defaults):
    keeps = row.get("keepsZero", row.get("zero") == "keep")
    expected = zero_of(row) if keeps else read_wire(defaults, row["field"])
    assert read_wire(load({row["field"]: zero_of(row)}, gates_of(row)), row["field"]) == expected


def test_the_table_says_what_becomes_of_zero(read_wire, defaults):
    silent = [row for row in FIELDS if "keepsZero" not in row]
    assert [row["field"] for row in silent if read_wire(defaults, row["field"]) not in (None, zero_of(row))] == []


@pytest.mark.parametrize("row", rows(lambda row: "sampleIsInvalid" not in row))
def test_sample_is_valid(row, load):
    config = load({**row.get("beside", {}), row["field"]: row["sample"]}, gates_of(row))
    gates = resolve_gates({**gates_of(row), **config.feature_gates})
    assert validate_configuration(config, gates, cgroup_v1=False) == ()


@pytest.mark.parametrize("row", rows(lambda row: "sampleIsInvalid" in row or "zeroIsInvalid" in row))
def test_sample_or_zero_is_refused(row, load):
    value = row["sample"] if "sampleIsInvalid" in row else zero_of(row)
    config = load({row["field"]: value}, gates_of(row))
    assert len(validate_configuration(config, resolve_gates(gates_of(row)), cgroup_v1=False)) == 1


@pytest.mark.parametrize("row", rows())
def test_wrong_type_names_file_and_field(row, load):
    wrong = WRONG.get(type_of(row), "nonsense")
    with pytest.raises(ConfigError) as caught:
        load({row["field"]: wrong})
    assert str(caught.value).startswith("failed to load kubelet config file, path: /etc/k.yaml, error: ")
    assert f'failed to decode: field "{row["field"]}' in str(caught.value)


@pytest.mark.parametrize("row", rows(lambda row: type_of(row) in RANGES))
def test_number_out_of_its_range_is_refused(row, load):
    with pytest.raises(ConfigError, match=f'field "{row["field"]}": {RANGES[type_of(row)]} is outside'):
        load({row["field"]: RANGES[type_of(row)]})


@pytest.mark.parametrize("row", rows(lambda row: "flag" in row))
def test_flag_sets_its_field(row, read_wire):
    parsed = parse_flags([f"--{row['flag']}={row['flagText']}"], ALL_FLAGS)
    config = override_configuration(flag_mode_configuration(), parsed)
    assert read_wire(config, row["field"]) == row["sample"]


def leaves(struct, path=""):
    for field in msgspec.structs.fields(struct):
        where = f"{path}.{field.encode_name}" if path else field.encode_name
        inner = field.type if isinstance(field.type, type) else None
        if where == "tracing":
            inner = field.type.__args__[0]
        if inner is not None and issubclass(inner, msgspec.Struct):
            yield from leaves(inner, where)
        else:
            yield where


def test_the_table_has_every_field():
    assert {row["field"] for row in FIELDS} == set(leaves(KubeletConfiguration))


def test_the_table_has_every_flag():
    listed = {row["flag"] for row in FIELDS if "flag" in row}
    assert listed == {flag.name for flag in CONFIGURATION_FLAGS}
    own = {row["flag"] for row in TABLE["kubeletFlags"]} | {text.split("=")[0] for text in TABLE["ignoredFlags"]}
    assert own | {"help", "version"} == {flag.name for flag in KUBELET_FLAGS}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in TABLE["validation"]])
def test_rule(case, load):
    gates = {**case.get("gates", {})}
    fields = dict(case["set"])
    chosen = fields.pop("featureGates", {})
    config = load(fields, gates)
    config = msgspec.structs.replace(config, feature_gates=chosen)
    problems = validate_configuration(config, resolve_gates(gates), cgroup_v1=case.get("cgroupV1", False))
    assert list(problems) == case["errors"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["flag"]) for row in TABLE["kubeletFlags"]])
def test_kubelet_flag(row):
    def shown(flags):
        value = getattr(flags, row["attribute"])
        return Duration.of(value).wire() if isinstance(value, timedelta) else value

    # A flag that is a switch takes its value only after an equals sign.
    is_switch = isinstance(row["value"], bool)
    arguments = [f"--{row['flag']}={row['text']}"] if is_switch else [f"--{row['flag']}", row["text"]]
    parsed = parse_flags(arguments, ALL_FLAGS)
    assert shown(build_kubelet_flags(parsed)) == row["value"]


@pytest.mark.parametrize("text", TABLE["ignoredFlags"])
def test_cadvisor_flag_is_accepted_with_a_warning(text):
    parsed = parse_flags([f"--{text}"], ALL_FLAGS)
    name = text.split("=")[0]
    (warning,) = parsed.warnings
    assert warning.startswith(f"Flag --{name} has been deprecated, This is a cadvisor flag that was mistakenly")


def test_every_flag_has_a_target_that_exists():
    for flag in ALL_FLAGS:
        assert flag.target is FlagTarget.NONE or flag.field
