import contextlib
from decimal import ROUND_UP, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.api.quantity import ZERO, Format, Quantity, QuantityError

FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_WRONG = "unable to parse quantity's suffix"

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@pytest.mark.parametrize(
    ("text", "nano", "format_", "printed"),
    [
        ("0", 0, Format.DECIMAL_SI, "0"),
        ("0n", 0, Format.DECIMAL_SI, "0"),
        ("0Ki", 0, Format.BINARY_SI, "0"),
        ("0.0", 0, Format.DECIMAL_SI, "0"),
        ("100m", 10**8, Format.DECIMAL_SI, "100m"),
        ("1000m", 10**9, Format.DECIMAL_SI, "1"),
        ("1500m", 15 * 10**8, Format.DECIMAL_SI, "1500m"),
        ("1.5", 15 * 10**8, Format.DECIMAL_SI, "1500m"),
        ("0.5", 5 * 10**8, Format.DECIMAL_SI, "500m"),
        (".5", 5 * 10**8, Format.DECIMAL_SI, "500m"),
        ("5.", 5 * 10**9, Format.DECIMAL_SI, "5."),
        ("1.G", 10**18, Format.DECIMAL_SI, "1.G"),
        ("2000k", 2 * 10**15, Format.DECIMAL_SI, "2M"),
        ("100k", 10**14, Format.DECIMAL_SI, "100k"),
        ("12345678901234567890", 12345678901234567890 * 10**9, Format.DECIMAL_SI, "12345678901234567890"),
        ("1Ki", 1024 * 10**9, Format.BINARY_SI, "1Ki"),
        ("128Mi", 2**27 * 10**9, Format.BINARY_SI, "128Mi"),
        ("1024Mi", 2**30 * 10**9, Format.BINARY_SI, "1Gi"),
        ("1.5Gi", 3 * 2**29 * 10**9, Format.BINARY_SI, "1536Mi"),
        ("1000Ki", 1000 * 1024 * 10**9, Format.BINARY_SI, "1000Ki"),
        ("1.1Ki", 11264 * 10**8, Format.BINARY_SI, "1126400m"),
        ("0.5Mi", 2**19 * 10**9, Format.BINARY_SI, "512Ki"),
        ("0.0009765625Ki", 10**9, Format.BINARY_SI, "1"),
        ("0.0001Ki", 102_400_000, Format.DECIMAL_SI, "102400u"),
        ("7Ei", 7 * 2**60 * 10**9, Format.BINARY_SI, "7Ei"),
        ("8Ei", (2**63 - 1) * 10**9, Format.BINARY_SI, "9223372036854775807"),
        ("-8Ei", -(2**63 - 1) * 10**9, Format.BINARY_SI, "-9223372036854775807"),
        ("9E", 9 * 10**27, Format.DECIMAL_SI, "9E"),
        ("1000E", 10**30, Format.DECIMAL_SI, "1e21"),
        ("1e3", 10**12, Format.DECIMAL_EXPONENT, "1e3"),
        ("1E6", 10**15, Format.DECIMAL_EXPONENT, "1E6"),
        ("12e2", 1200 * 10**9, Format.DECIMAL_EXPONENT, "1200"),
        ("1e-3", 10**6, Format.DECIMAL_EXPONENT, "1e-3"),
        ("5e+3", 5 * 10**12, Format.DECIMAL_EXPONENT, "5e+3"),
        ("1e-1000000000", 1, Format.DECIMAL_EXPONENT, "1e-9"),
        ("0e-1000000000", 0, Format.DECIMAL_EXPONENT, "0"),
        ("0.1n", 1, Format.DECIMAL_SI, "1n"),
        ("-0.1n", -1, Format.DECIMAL_SI, "-1n"),
        ("1.0000000001", 1_000_000_001, Format.DECIMAL_SI, "1000000001n"),
        ("-5", -5 * 10**9, Format.DECIMAL_SI, "-5"),
        ("+5", 5 * 10**9, Format.DECIMAL_SI, "+5"),
        ("007", 7 * 10**9, Format.DECIMAL_SI, "007"),
        ("Gi", 0, Format.BINARY_SI, "0"),
        ("1.500", 15 * 10**8, Format.DECIMAL_SI, "1.500"),
    ],
    ids=str,
)
def test_parse(text, nano, format_, printed):
    quantity = Quantity.parse(text)
    assert quantity.nano == nano
    assert quantity.format is format_
    assert str(quantity) == printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", FORMAT_WRONG),
        ("1.1.M", FORMAT_WRONG),
        ("1+1.0M", FORMAT_WRONG),
        ("0.1am", FORMAT_WRONG),
        ("aoeu", FORMAT_WRONG),
        (" 1", FORMAT_WRONG),
        ("1 ", FORMAT_WRONG),
        ("1\n", FORMAT_WRONG),
        ("1B", FORMAT_WRONG),
        ("0.1mi", SUFFIX_WRONG),
        (".5i", SUFFIX_WRONG),
        ("1i", SUFFIX_WRONG),
        ("1K", SUFFIX_WRONG),
        ("-3.01e-", SUFFIX_WRONG),
        ("1e1000000000", SUFFIX_WRONG),
        ("1+5", SUFFIX_WRONG),
        ("9" * 1001, "unable to parse numeric part of quantity"),
    ],
)
def test_what_is_no_quantity_is_refused(text, message):
    with pytest.raises(QuantityError) as caught:
        Quantity.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("1", 1, 1000),
        ("1m", 1, 1),
        ("1n", 1, 1),
        ("1500m", 2, 1500),
        ("-1500m", -2, -1500),
        ("-1n", -1, -1),
        ("0", 0, 0),
        ("1Gi", 2**30, 2**30 * 1000),
        ("100500u", 1, 101),
    ],
)
def test_whole_values_are_rounded_away_from_zero(text, value, milli):
    assert Quantity.parse(text).value() == value
    assert Quantity.parse(text).milli_value() == milli


def test_scaled_value():
    amount = Quantity.parse("1234567")
    assert [amount.scaled_value(places) for places in (6, 3, 0, -3, -12)] == [
        2, 1235, 1234567, 1234567000, 1234567 * 10**12,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "exponent", "expected"),
    [("1234m", 0, "2"), ("-1234m", 0, "-2"), ("1234m", -3, "1234m"), ("1n", -12, "1n"), ("1500", 3, "2k")],
)
def test_round_up(text, exponent, expected):
    assert str(Quantity.parse(text).round_up(exponent)) == expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(Quantity.parse("100m") + Quantity.parse("1"), "1100m", id="a sum"),
        pytest.param(ZERO + Quantity.parse("1Gi"), "1Gi", id="zero takes the format of what is added"),
        pytest.param(Quantity.parse("1Gi") + Quantity.parse("1"), "1073741825", id="the first keeps its format"),
        pytest.param(ZERO - Quantity.parse("1Ki"), "-1Ki", id="zero takes the format of what is taken away"),
        pytest.param(Quantity.parse("1Gi") - Quantity.parse("512Mi"), "512Mi", id="a difference"),
        pytest.param(-Quantity.parse("5m"), "-5m", id="the opposite"),
        pytest.param(Quantity.parse("250m") * 4, "1", id="a multiple"),
        pytest.param(Quantity.of(2**31, Format.BINARY_SI), "2Gi", id="made from units"),
        pytest.param(Quantity.of_milli(1500), "1500m", id="made from thousandths"),
        pytest.param(Quantity.of(512, Format.BINARY_SI), "512", id="binary has no suffix below Ki"),
    ],
)
def test_arithmetic(result, expected):
    assert str(result) == expected


def test_equality_is_by_value_and_so_is_the_hash():
    assert Quantity.parse("1") == Quantity.parse("1000m") == Quantity.parse("1e0")
    assert len({Quantity.parse("1Ki"), Quantity.parse("1024"), Quantity.parse("1.024k")}) == 1
    assert Quantity.parse("1") != "1"


def test_views():
    amount = Quantity.parse("1500m")
    assert (float(amount), amount.as_decimal(), amount.sign, amount.is_zero, bool(amount)) == (
        1.5, Decimal("1.5"), 1, False, True,
    )  # fmt: skip
    assert repr(amount) == "Quantity.parse('1500m')"
    assert (ZERO.sign, ZERO.is_zero, bool(ZERO)) == (0, True, False)


@st.composite
def texts(draw):
    sign = draw(st.sampled_from(["", "+", "-"]))
    whole = draw(st.integers(0, 10**15))
    fraction = draw(st.one_of(st.just(""), st.from_regex(r"\.[0-9]{1,12}", fullmatch=True)))
    suffix = draw(st.sampled_from([*DECIMAL, *BINARY, "e3", "E-3", "e10", "e-20"]))
    return sign, f"{whole}{fraction}", suffix


def exact(sign: str, number: str, suffix: str) -> Decimal:
    if suffix in DECIMAL:
        factor = Decimal(10) ** DECIMAL[suffix]
    elif suffix in BINARY:
        factor = Decimal(2) ** BINARY[suffix]
    else:
        factor = Decimal(10) ** int(suffix[1:])
    value = (Decimal(number) * factor).quantize(Decimal("1e-9"), ROUND_UP)
    if suffix in BINARY:
        value = min(value, Decimal(2**63 - 1))
    return -value if sign == "-" else value


@given(texts())
def test_a_quantity_is_the_exact_number_up_to_a_billionth(parts):
    with localcontext() as context:
        context.prec = 80
        assert Quantity.parse("".join(parts)).as_decimal() == exact(*parts)


@given(texts())
def test_the_canonical_form_reads_back_and_is_stable(parts):
    quantity = Quantity.parse("".join(parts))
    canonical = str(Quantity(quantity.nano, quantity.format))
    again = Quantity.parse(canonical)
    assert again == quantity
    assert str(again) == canonical


@given(texts(), texts())
def test_sums_and_comparisons_agree_with_exact_numbers(one, other):
    with localcontext() as context:
        context.prec = 80
        a, b = Quantity.parse("".join(one)), Quantity.parse("".join(other))
        assert (a + b).as_decimal() == a.as_decimal() + b.as_decimal()
        assert (a - b) + b == a
        assert (a < b) == (a.as_decimal() < b.as_decimal())
        assert (a >= b) == (a.as_decimal() >= b.as_decimal())


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(QuantityError):
        Quantity.parse(text)
