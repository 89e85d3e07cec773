"""Gates, flags and configuration fields beside those of upstream's kubelet of the pinned release.

`scripts/upstream-settings` wrote the data. A failure prints each difference. One that is meant stands in the table of
differences in docs/configuration.md, with its reason, and nothing else may stand there.
"""

import json
import re
import typing
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from klet.api.placement import Taint
from klet.api.quantity import Quantity
from klet.api.times import Time
from klet.config.command_line import flag_mode_configuration
from klet.config.configuration import KubeletConfiguration
from klet.config.flags import KubeletFlags
from klet.config.flagset import FlagTarget
from klet.config.gates import KNOWN_GATES, describe_gates
from klet.config.help import ALL_FLAGS, render_help
from klet.config.klet import KLET_FLAGS
from klet.config.sections import MemoryReservation, ShutdownGracePeriodByPodPriority, VModuleItem
from klet.version import KUBERNETES_VERSION

REPOSITORY = Path(__file__).parents[3]
UPSTREAM = json.loads((REPOSITORY / "tests" / "data" / "upstream_settings.json").read_text())
PAGE = (REPOSITORY / "docs" / "configuration.md").read_text()
ROW = re.compile(r"^\| `([^`]+)` (\S+) \| `([^`]*)` \| `([^`]*)` \| (.+) \|$", re.MULTILINE)
SHARED_FLAGS = {flag.name: flag for flag in ALL_FLAGS if flag not in KLET_FLAGS}
TYPES = {
    bool: "bool",
    str: "string",
    float: "float64",
    timedelta: "v1.Duration",
    Quantity: "resource.QuantityValue",
    Time: "v1.Time",
    tuple[str, ...]: "[]string",
    tuple[Taint, ...]: "[]v1.Taint",
    tuple[MemoryReservation, ...]: "[]v1beta1.MemoryReservation",
    tuple[ShutdownGracePeriodByPodPriority, ...]: "[]v1beta1.ShutdownGracePeriodByPodPriority",
    tuple[VModuleItem, ...]: "v1.VModuleConfiguration",
    Mapping[str, str]: "map[string]string",
    Mapping[str, bool]: "map[string]bool",
    Mapping[str, tuple[str, ...]]: "map[string][]string",
    Mapping[str, Quantity]: "v1.ResourceList",
}
NUMBERS = {2**31 - 1: "int32", 2**63 - 1: "int64", 2**32 - 1: "uint32"}
ZERO_TEXTS = frozenset({"", "0", "0s", "[]", "false"})
"""Defaults that upstream's help text leaves out."""


class Difference(typing.NamedTuple):
    setting: str
    aspect: str
    upstream: str
    klet: str


@pytest.fixture(scope="module")
def explained() -> dict[Difference, str]:
    """The differences that are meant, with their reasons."""
    _, _, section = PAGE.partition("\n## Compared with upstream's\n")
    return {Difference(*row[:4]): row[4] for row in ROW.findall(section.partition("\n## ")[0])}


@pytest.fixture(scope="module")
def found(load, read_wire) -> list[Difference]:
    """Every difference."""
    return [
        *compare(UPSTREAM["gates"], {name: gate_row(gate) for name, gate in KNOWN_GATES.items()}),
        *compare(
            {f"--{name}": {**row, "default": None} for name, row in UPSTREAM["flags"].items()},
            {f"--{name}": flag_row(flag) for name, flag in SHARED_FLAGS.items()},
        ),
        *compare(UPSTREAM["fields"], field_rows(load({}), flag_mode_configuration(), read_wire)),
    ]


def compare(upstream: Mapping[str, dict], own: Mapping[str, dict]) -> Iterator[Difference]:
    for name in sorted(upstream.keys() | own.keys()):
        if name not in own or name not in upstream:
            yield Difference(name, "exists", *(str(name in each).lower() for each in (upstream, own)))
            continue
        for aspect in sorted(upstream[name].keys() | own[name].keys()):
            values = upstream[name].get(aspect), own[name].get(aspect)
            if values[0] != values[1]:
                yield Difference(name, aspect, *map(json.dumps, values))


def gate_row(gate) -> dict:
    return {
        "stage": gate.stage.name,
        "default": gate.default,
        "locked": gate.locked,
        "dependencies": list(gate.needs),
    }


def flag_row(flag) -> dict:
    return {
        "kind": flag.kind.name,
        "shorthand": flag.shorthand,
        "implied": flag.kind.implied,
        "deprecated": flag.deprecated,
        "hidden": False,
        "default": None,
    }


def field_rows(in_file, without_file, read_wire) -> dict[str, dict]:
    rows = {}
    for path, kind in leaves(KubeletConfiguration):
        values = (None, None) if "[]" in path else (read_wire(in_file, path), read_wire(without_file, path))
        rows[path] = {"type": type_name(kind), "default": values[0], "withoutFile": values[1]}
    return rows


def leaves(struct, path=""):
    """The fields of an object and of the objects in it, with their types."""
    for field in msgspec.structs.fields(struct):
        where = f"{path}{field.encode_name}"
        # None is how a field says that it may be absent.
        kind = next((each for each in typing.get_args(field.type) if is_struct(each)), field.type)
        if is_struct(kind) and typing.get_origin(field.type) is not tuple:
            yield from leaves(kind, f"{where}.")
            continue
        yield where, field.type
        if is_struct(kind):
            yield from leaves(kind, f"{where}[].")


def is_struct(kind) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in TYPES


def type_name(kind) -> str:
    if kind in TYPES:
        return TYPES[kind]
    if typing.get_origin(kind) is typing.Annotated:
        base, meta = typing.get_args(kind)
        return NUMBERS[meta.le] if base is int else "v1.TimeOrMetaDuration"
    options = [each for each in typing.get_args(kind) if each is not type(None)]
    return type_name(options[0]) if len(options) == 1 else str(kind)


def describe(difference: Difference) -> str:
    return f"{difference.setting} {difference.aspect}: upstream {difference.upstream}, klet {difference.klet}"


def test_the_data_is_of_the_release_that_klet_follows():
    assert UPSTREAM["release"] == KUBERNETES_VERSION


def test_every_difference_is_written_down_with_its_reason(found, explained):
    unexplained = [difference for difference in found if difference not in explained]
    assert not unexplained, "\n".join(map(describe, unexplained))


def test_what_is_written_down_does_differ(found, explained):
    gone = [difference for difference in explained if difference not in found]
    assert not gone, "\n".join(map(describe, gone))
    assert all(reason.strip() for reason in explained.values())


def test_flags_of_klets_own_can_be_told_by_their_names():
    assert [flag.name for flag in KLET_FLAGS if not flag.name.startswith("klet-")] == []
    assert [name for name in UPSTREAM["flags"] if name.startswith("klet-")] == []


def value_of(flag, config, read_wire, wire):
    match flag.target:
        case FlagTarget.CONFIGURATION:
            return read_wire(config, flag.field)
        case FlagTarget.FLAGS:
            return wire(getattr(KubeletFlags(), flag.field))
        case _:
            return wire(flag.kind.parse(flag.default, None)) if flag.default else False


@pytest.mark.parametrize("name", UPSTREAM["flags"])
def test_default_of_a_flag(name, read_wire, as_wire, explained):
    flag, text = SHARED_FLAGS[name], UPSTREAM["flags"][name]["default"]
    own = value_of(flag, flag_mode_configuration(), read_wire, as_wire)
    if own is None:
        assert any(each.setting == flag.field for each in explained)
    elif isinstance(own, dict | list):
        # A list is written in brackets; no other default of this kind has anything in it.
        assert own == [each for each in text.strip("[]").split(",") if each] or (not own and not text)
    else:
        assert own == as_wire(flag.kind.parse(text, None))


def test_the_help_text_lists_the_same_flags(explained):
    written = re.findall(r"^ +(?:-(\w), )?--([\w-]+)(?: ([^*\s]\S*))?(?: \*)?$", run_help(), re.MULTILINE)
    own = {name: (short, kind) for short, name, kind in written}
    assert {name for name in own if not name.startswith("klet-")} == UPSTREAM["flags"].keys()
    different = {name for name, row in UPSTREAM["flags"].items() if (row["shorthand"], row["kind"]) != own[name]}
    assert different == {"seccomp-default"}


@pytest.mark.parametrize("name", [name for name, row in UPSTREAM["flags"].items() if row["default"] not in ZERO_TEXTS])
def test_the_help_text_shows_the_same_default(name):
    text = re.search(rf"^ +(?:-\w, )?--{name}(?: .*)?\n((?: {{12}}.*\n)+)", run_help(), re.MULTILINE)
    assert f"(default {UPSTREAM['flags'][name]['default']})" in " ".join(text[1].split())


def test_the_help_text_lists_the_same_gates():
    shown = [
        f"{name}=true|false ({row['stage']} - default={str(row['default']).lower()})"
        for name, row in sorted(UPSTREAM["gates"].items())
        if row["stage"] in ("ALPHA", "BETA")
    ]
    assert list(describe_gates()) == shown
    assert "".join(f"  {line}\n" for line in shown) in run_help()


def run_help() -> str:
    return render_help(flag_mode_configuration())
