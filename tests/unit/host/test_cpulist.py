import pytest

from klet.host.cpulist import cpu_mask, format_cpu_list, parse_cpu_list
from klet.host.errors import MalformedFile


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("\n", set()),
        ("3", {3}),
        ("1-1", {1}),
        ("0-2,7", {0, 1, 2, 7}),
        ("0-5,34\n", {0, 1, 2, 3, 4, 5, 34}),
        ("4-6,0-9,5,2-3", set(range(10))),
    ],
)
def test_parse(text, cpus):
    assert parse_cpu_list(text) == cpus


def test_a_backward_range_is_refused():
    with pytest.raises(MalformedFile, match=r'invalid range "5-3" \(5 > 3\)'):
        parse_cpu_list("1,5-3")


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1,,2", "1-2-3", "0x1", "²", "0-99999999999", "9" * 5000])
def test_what_is_no_list_is_refused(text):
    with pytest.raises(MalformedFile):
        parse_cpu_list(text)


@pytest.mark.parametrize(("cpus", "text"), [((), ""), ((3,), "3"), ((34, 0, 1, 2, 3, 4, 5), "0-5,34"), ((1, 3), "1,3")])
def test_format(cpus, text):
    assert format_cpu_list(cpus) == text


@pytest.mark.parametrize(("cpus", "mask"), [((), b""), ((0,), b"\x01"), ((0, 9), b"\x01\x02"), ((7,), b"\x80")])
def test_mask(cpus, mask):
    assert cpu_mask(cpus) == mask
