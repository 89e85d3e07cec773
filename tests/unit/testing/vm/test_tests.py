import pytest

from klet.testing.vm.tests import choose_tests


@pytest.mark.parametrize(
    ("arguments", "chosen", "expected"),
    [
        pytest.param([], "all", ["tests/machine"], id="all tests of the machine"),
        pytest.param([], "dozen", ["tests/machine", "-m", "dozen"], id="a dozen of them"),
        pytest.param(
            ["-k", "reboot"], "all", ["tests/machine", "-k", "reboot"], id="the value of an option is no path"
        ),
        pytest.param(
            ["--kubelet", "upstream"], "all", ["tests/machine", "--kubelet", "upstream"], id="with another kubelet"
        ),
        pytest.param(["tests/machine/test_unit.py"], "all", ["tests/machine/test_unit.py"], id="one file"),
        pytest.param(
            ["-x", "tests/machine/test_unit.py::test_one"],
            "all",
            ["-x", "tests/machine/test_unit.py::test_one"],
            id="one test",
        ),
    ],
)
def test_choose_tests(arguments, chosen, expected):
    assert choose_tests(arguments, chosen=chosen) == expected
