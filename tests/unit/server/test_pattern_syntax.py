import pytest

from klet.server.pattern_syntax import find_pattern_problem


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "error|warn",
        "a+?b*+c??",
        "(?i)x{2,3}",
        "[]a]",
        "[^]]",
        "[[:alpha:]_]+",
        r"\(\[",
        "a{",
        "{}",
        "x{,3}",
        "(a)(b)",
    ],
)
def test_what_is_well_formed(pattern):
    assert find_pattern_problem(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[]", "missing closing ]: `[]`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|*", "missing argument to repetition operator: `*`"),
        ("(+)", "missing argument to repetition operator: `+`"),
        ("a**", "invalid nested repetition operator: `*`"),
        ("a{2}{3}", "invalid nested repetition operator: `{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("a\0", "invalid character: `\\x00`"),
    ],
)
def test_what_is_not(pattern, problem):
    assert find_pattern_problem(pattern) == problem


def test_depth_has_a_limit():
    assert find_pattern_problem("(" * 251 + ")" * 251).startswith("expression nests too deeply")
