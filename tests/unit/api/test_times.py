from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.api.times import Duration, MicroTime, Time, TimeError, format_duration, parse_duration

NOON = datetime(2024, 2, 3, 12, 0, 0, 123456, tzinfo=UTC)
SECOND, MINUTE, HOUR = 10**9, 60 * 10**9, 3600 * 10**9


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2024-02-03T12:00:00Z", "2024-02-03T12:00:00Z"),
        ("2024-02-03T14:00:00+02:00", "2024-02-03T12:00:00Z"),
        ("2024-02-03T12:00:00.999999999Z", "2024-02-03T12:00:00Z"),
    ],
)
def test_time_is_written_in_whole_seconds_of_utc(text, written):
    assert Time.parse(text).wire() == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2024-02-03T12:00:00.000000Z", "2024-02-03T12:00:00.000000Z"),
        ("2024-02-03T14:00:00.120000+02:00", "2024-02-03T12:00:00.120000Z"),
    ],
)
def test_micro_time_has_six_digits(text, written):
    assert MicroTime.parse(text).wire() == written


@pytest.mark.parametrize(
    "text",
    [
        *("", "2024-02-03", "2024-02-03T12:00:00", "2024-02-30T12:00:00Z", "2024-02-03 12:00:00Z"),
        *("٢024-02-03T12:00:00Z", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"),
    ],
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(TimeError):
        Time.parse(text)


@pytest.mark.parametrize("text", ["2024-02-03T12:00:00Z", "2024-02-03T12:00:00.1Z", "2024-13-03T12:00:00.000000Z"])
def test_micro_time_wants_exactly_six_digits_and_a_real_date(text):
    with pytest.raises(TimeError):
        MicroTime.parse(text)


def test_times_are_made_of_aware_instants():
    assert Time.of(NOON) == NOON.replace(microsecond=0)
    assert Time.of(NOON.astimezone(timezone(timedelta(hours=5)))).wire() == "2024-02-03T12:00:00Z"
    assert MicroTime.of(NOON) == NOON
    with pytest.raises(TimeError, match="no time zone"):
        Time.of(NOON.replace(tzinfo=None))


def test_times_in_another_zone_are_written_in_utc():
    east = timezone(timedelta(hours=2))
    assert Time(2024, 2, 3, 14, tzinfo=east).wire() == "2024-02-03T12:00:00Z"
    assert MicroTime(2024, 2, 3, 14, tzinfo=east).wire() == "2024-02-03T12:00:00.000000Z"


def test_times_compare_and_compute_with_instants():
    assert Time.of(NOON) < NOON
    assert Time.of(NOON) + timedelta(seconds=1) > NOON


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0), ("5s", 5 * SECOND), ("30s", 30 * SECOND), ("1478s", 1478 * SECOND), ("-5s", -5 * SECOND),
        ("+5s", 5 * SECOND), ("-0", 0), ("+0", 0), ("5.0s", 5 * SECOND), ("5.6s", 5 * SECOND + 600_000_000),
        ("5.s", 5 * SECOND), (".5s", SECOND // 2), ("1.004s", 1_004_000_000), ("100.00100s", 100_001_000_000),
        ("10ns", 10), ("11us", 11_000), ("12µs", 12_000), ("12μs", 12_000), ("13ms", 13_000_000),
        ("14s", 14 * SECOND), ("15m", 15 * MINUTE), ("16h", 16 * HOUR), ("3h30m", 3 * HOUR + 30 * MINUTE),
        ("10.5s4m", 4 * MINUTE + 10_500_000_000), ("-2m3.4s", -(2 * MINUTE + 3_400_000_000)),
        ("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4_005_006), ("52763797000ns", 52763797000),
        ("0.3333333333333333333h", 20 * MINUTE), ("9007199254740993ns", 9007199254740993),
        ("9223372036854775807ns", 2**63 - 1), ("-9223372036854775808ns", -(2**63)),
        ("0.100000000000000000000h", 6 * MINUTE), ("0.830103483285477580700h", 49 * MINUTE + 48_372_539_827),
    ],
)  # fmt: skip
def test_parse_duration(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("3", 'time: missing unit in duration "3"'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        (".", 'time: invalid duration "."'),
        (".s", 'time: invalid duration ".s"'),
        ("+.s", 'time: invalid duration "+.s"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("\x85\x85", r'time: invalid duration "\xc2\x85\xc2\x85"'),
        ("hello \xff world", r'time: invalid duration "hello \xc3\xbf world"'),
        ('1"', r'time: unknown unit "\"" in duration "1\""'),
        ("9223372036854775810ns", 'time: invalid duration "9223372036854775810ns"'),
        ("9223372036854775.808us", 'time: invalid duration "9223372036854775.808us"'),
        ("-9223372036854775809ns", 'time: invalid duration "-9223372036854775809ns"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
        ("1h 2m", 'time: unknown unit "h " in duration "1h 2m"'),
        (f"{'9' * 5000}s", f'time: invalid duration "{"9" * 256}"'),
    ],
)
def test_what_is_no_duration_is_refused_in_the_words_of_go(text, message):
    with pytest.raises(TimeError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"), (1, "1ns"), (1100, "1.1µs"), (2_200_000, "2.2ms"), (3_300_000_000, "3.3s"),
        (4 * MINUTE + 5 * SECOND, "4m5s"), (4 * MINUTE + 5_001_000_000, "4m5.001s"), (MINUTE, "1m0s"),
        (5 * HOUR + 6 * MINUTE + 7_001_000_000, "5h6m7.001s"), (8 * MINUTE + 1, "8m0.000000001s"), (HOUR, "1h0m0s"),
        (2**63 - 1, "2562047h47m16.854775807s"), (-(2**63), "-2562047h47m16.854775808s"), (-1500, "-1.5µs"),
    ],
)  # fmt: skip
def test_format_duration(nanoseconds, text):
    assert format_duration(nanoseconds) == text
    assert parse_duration(text) == nanoseconds


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_formatted_duration_reads_back(nanoseconds):
    # Go computes fractions in floating point; below a second there is no whole part to absorb the error, above it 9
    # digits are exact.
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


def test_duration_is_a_timedelta_that_knows_how_to_be_written():
    assert Duration.parse("1m30s") == timedelta(seconds=90)
    assert Duration.parse("-1500ns") == timedelta(microseconds=-1)
    assert Duration.of(timedelta(days=1, milliseconds=1)).wire() == "24h0m0.001s"
