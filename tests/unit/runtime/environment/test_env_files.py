"""Files of environment variables: what is a variable, and what is an error."""

import pytest

from klet.runtime.environment.env_files import LONGEST_LINE, EnvFile, EnvFileError, find_variable, read_env_file


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("A='x'", "x", id="the last line needs no end"),
        pytest.param("A='x'\n", "x", id="a plain value"),
        pytest.param(" \tA='x'\n", "x", id="blanks in front"),
        pytest.param("\n  \n# no\n  # no\nA='x'\n", "x", id="empty lines and comments are skipped"),
        pytest.param("B='y'\nA='x'\n", "x", id="others come first"),
        pytest.param("A='x'\nA='y'\n", "x", id="the first counts"),
        pytest.param("A=''\n", "", id="an empty value"),
        pytest.param("A= 'x'\n", "", id="a blank after the sign: empty"),
        pytest.param("A=\t\n", "", id="a tab after the sign: empty"),
        pytest.param("A='x'   \n", "x", id="blanks after the quote"),
        pytest.param("A='x' # said so\n", "x", id="a comment after the quote"),
        pytest.param("A='x # y'\n", "x # y", id="a number sign within the quotes"),
        pytest.param("A='b=c'\n", "b=c", id="an equals sign within the quotes"),
        pytest.param("A='$B \\n \"q\"'\n", '$B \\n "q"', id="nothing is expanded"),
        pytest.param("A='one\n two\n\nfour'\n", "one\n two\n\nfour", id="over several lines"),
        pytest.param("A='one\n# two'\n", "one\n# two", id="no comments within the quotes"),
        pytest.param("B='\nA='\n", None, id="a name within another's value does not count"),
        pytest.param("export A='x'\n", None, id="export is a part of the name"),
        pytest.param("a='x'\n", None, id="case matters"),
        pytest.param("", None, id="an empty file"),
        pytest.param("A='x'\nnonsense\n", "x", id="errors after the wanted one are not seen"),
        pytest.param("A='" + "x" * 1000 + "'\n", "x" * 1000, id="a long line"),
    ],
)
def test_find_variable(content, expected):
    assert find_variable(content.encode(), "A") == expected


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        pytest.param("nonsense\n", "line 1: a variable is written NAME='value'", id="no equals sign"),
        pytest.param("\n='x'\n", "line 2: the name must stand directly before the equals sign", id="no name"),
        pytest.param("A ='x'\n", "line 1: the name must stand directly before", id="a blank before the sign"),
        pytest.param("A=x\n", "line 1: a value must stand in single quotes", id="a bare value"),
        pytest.param('A="x"\n', "line 1: a value must stand in single quotes", id="double quotes"),
        pytest.param("A=\n", "line 1: a value must stand in single quotes", id="nothing at all"),
        pytest.param("A='x", "line 1: the quote is not closed", id="an open quote"),
        pytest.param("A='x\ny\n", "line 2: the quote is not closed", id="an open quote over lines"),
        pytest.param("A='x''y'\n", "line 1: only a comment may follow", id="two quoted texts"),
        pytest.param("A='x'y\n", "line 1: only a comment may follow", id="text after the quote"),
        pytest.param(
            "B=x\nA='x'\n", "line 1: a value must stand in single quotes", id="an error before the wanted one"
        ),
        pytest.param("B='" + "x" * LONGEST_LINE + "'\n", f"line 1: longer than {LONGEST_LINE} bytes", id="too long"),
    ],
)
def test_wrong_lines(content, rule):
    with pytest.raises(EnvFileError) as caught:
        find_variable(content.encode(), "A")
    assert str(caught.value).startswith(rule)


def test_bytes_that_are_not_text_survive():
    value = find_variable(b"A='\xff'\n", "A")
    assert value is not None
    assert value.encode(errors="surrogateescape") == b"\xff"


def test_all_variables_of_a_file_are_found_in_one_reading():
    found = read_env_file(b"A='1'\nB='2'\nA='3'\nC=4\nD='5'\n", {"A", "B", "C", "D"})
    assert found.values == {"A": "1", "B": "2"}
    assert (found.find("A"), found.find("B")) == ("1", "2")
    with pytest.raises(EnvFileError, match="line 4"):
        found.find("D")


def test_nothing_is_kept_that_nobody_asked_for_and_nothing_is_read_behind_the_last_name():
    assert read_env_file(b"X='1'\nA='2'\nwrong", {"A"}) == EnvFile({"A": "2"})
