from dataclasses import dataclass

import pytest

from klet.checkpoint.dump import (
    INT,
    STRING,
    Bytes,
    DumpField,
    DumpScalar,
    Map,
    Pointer,
    Slice,
    Struct,
    checksum,
    dump,
    fnv1a,
)


@dataclass
class Point:
    x: int | None
    tags: list[str] | None


POINT = Struct("geo.Point", (DumpField("X", "x", INT), DumpField("Tags", "tags", Slice("[]string", STRING))))


@pytest.mark.parametrize(
    ("value", "go_type", "printed"),
    [
        pytest.param("a b", STRING, "(string)a b", id="strings print raw"),
        pytest.param(-3, INT, "(int)-3", id="integers print in decimal"),
        pytest.param(b"\x0a\xff", Bytes(), "([]uint8)[10 255]", id="bytes print as numbers"),
        pytest.param([1, 2], Slice("[]int", INT), "([]int)[1 2]", id="elements carry no type"),
        pytest.param([], Slice("[]int", INT), "([]int)[]", id="an empty slice"),
        pytest.param(None, Slice("[]int", INT), "([]int)<nil>", id="a nil slice is not an empty one"),
        pytest.param({}, Map("map[string]int", INT), "(map[string]int)map[]", id="an empty map"),
        pytest.param(
            {"b": 1, "a": 2, "B": 3}, Map("map[string]int", INT), "(map[string]int)map[B:3 a:2 b:1]",
            id="string keys sort by their bytes",
        ),
        pytest.param(
            {10: "x", -1: "y", 9: "z"}, Map("map[int]string", STRING), "(map[int]string)map[-1:y 9:z 10:x]",
            id="integer keys sort by value, negative ones first",
        ),
        pytest.param(
            Point(1, ["p", "q"]), POINT, "(geo.Point){X:(int)1 Tags:([]string)[p q]}", id="fields carry their type"
        ),
        pytest.param(
            Point(1, None), Pointer(POINT), "(*geo.Point){X:(int)1 Tags:([]string)<nil>}", id="a pointer at the top"
        ),
        pytest.param(
            {0: Point(1, []), 1: None}, Map("geo.Map", Pointer(POINT)),
            "(geo.Map)map[0:<*>{X:(int)1 Tags:([]string)[]} 1:<nil>]", id="a pointer in a map",
        ),
        pytest.param(
            [Point(1, [])], Slice("[]geo.Point", POINT), "([]geo.Point)[{X:(int)1 Tags:([]string)[]}]",
            id="a struct in a slice",
        ),
    ],
)  # fmt: skip
def test_dump(value, go_type, printed):
    assert dump(value, go_type) == printed


def test_a_value_of_the_wrong_kind_is_a_bug():
    with pytest.raises(TypeError, match=r"int cannot be printed as \[\]string"):
        dump(1, Slice("[]string", STRING))


@pytest.mark.parametrize(("data", "expected"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_fnv1a(data, expected):
    assert fnv1a(data) == expected


def test_the_checksum_is_of_the_printed_text():
    assert checksum("x", DumpScalar("string")) == fnv1a(b"(string)x")
