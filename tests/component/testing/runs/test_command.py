"""The test command on small directories: what it says, what it returns, and that it leaves nothing behind."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.deadline(300)
LAST_LINE = re.compile(r"passed \d+, failed \d+, skipped \d+(, x(failed|passed) \d+)* in \d+:\d\d")
TIMED = re.compile(r"^\d\d:\d\d:\d\d ")

MIXED = {
    "tests/integration/test_machine.py": """
        import pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_skipped(number):
            pytest.skip("no thing: apt-get install thing")

        def test_passed():
            pass
    """,
    "tests/unit/test_beside.py": """
        import pytest

        def test_failed():
            assert "beside" == "wrong"

        @pytest.fixture
        def broken():
            raise OSError("broken fixture")

        def test_error(broken):
            pass

        @pytest.mark.xfail(strict=True)
        def test_expected():
            assert False
    """,
    "tests/simulation/test_last.py": """
        import pytest

        def test_passed():
            pass

        def test_skipped():
            pytest.skip("no other thing: it cannot be had here")
    """,
    "tests/data/nothing.py": "",
}
HANGS = """
    import os, time
    from pathlib import Path

    def test_hangs():
        Path("pid").write_text(str(os.getpid()))
        time.sleep(1000)
"""
SLOW_TO_END = """
    import os, time
    from pathlib import Path

    def test_hangs():
        try:
            Path("pid").write_text(str(os.getpid()))
            time.sleep(1000)
        finally:
            Path("late").touch()
            time.sleep(1000)
"""


@pytest.fixture(scope="module")
def mixed(command_on):
    return command_on(MIXED)


def test_the_last_line_sums_up_all_parts(mixed):
    assert mixed.code == 1
    assert mixed.lines[-1].rpartition(" in ")[0] == "passed 2, failed 2, skipped 3, xfailed 1"
    assert LAST_LINE.fullmatch(mixed.lines[-1])


def test_what_failed_and_what_was_skipped_stands_before_it(mixed):
    assert mixed.lines[-5:-1] == [
        "skipped 2: no thing: apt-get install thing",
        "skipped 1: no other thing: it cannot be had here",
        "FAILED tests/unit/test_beside.py::test_failed",
        "FAILED tests/unit/test_beside.py::test_error",
    ]


def test_each_part_says_when_it_begins_and_what_came_of_it(mixed):
    said = [TIMED.sub("", line) for line in mixed.lines if TIMED.match(line)]
    assert "machine: pytest tests/integration" in said
    assert "beside: pytest tests/unit" in said
    assert "beside: FAILED tests/unit/test_beside.py::test_failed" in said
    assert said.index("simulation: pytest tests/simulation") > said.index("beside: pytest tests/unit")
    assert any(line.startswith("beside: passed 0, failed 2, skipped 0, xfailed 1 in ") for line in said)


def test_the_output_of_a_part_that_failed_is_shown(mixed):
    assert "OSError: broken fixture" in mixed.output
    assert "===== output of machine" not in mixed.output


def test_a_test_that_kills_its_process_is_counted_and_the_others_run(command_on):
    killer = """
        import os, pytest

        def test_before():
            pass

        @pytest.mark.parametrize("how", [lambda: os.kill(os.getpid(), 9), lambda: os._exit(0)], ids=["killed", "left"])
        def test_broken(how):
            how()

        def test_after():
            pass
    """
    ran = command_on({"tests/unit/test_killer.py": killer})
    assert ran.code == 1
    assert ran.lines[-1].startswith("passed 2, failed 2, skipped 0 in ")
    assert ran.lines[-3:-1] == [
        "FAILED tests/unit/test_killer.py::test_broken[killed] (the process of pytest ended: signal 9)",
        "FAILED tests/unit/test_killer.py::test_broken[left] (the process of pytest ended: exit code 0)",
    ]


def test_tests_that_did_not_run_are_a_failure(command_on):
    leaves = "import pytest\n\ndef test_a():\n    pytest.exit('enough', 0)\n\ndef test_b():\n    pass\n"
    ran = command_on({"tests/unit/test_leaves.py": leaves})
    assert ran.code == 1
    assert ran.lines[-2] == "FAILED beside (1 tests did not run)"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        pytest.param(("tests/simulation",), 0, "passed 1, failed 0, skipped 1", id="a directory"),
        pytest.param(("-k", "passed"), 0, "passed 2, failed 0, skipped 0", id="a choice"),
        pytest.param(("tests/unit", "-x"), 1, "passed 0, failed 1, skipped 0", id="until one fails"),
        pytest.param(("-k", "nothing"), 5, "passed 0, failed 0, skipped 0", id="nothing"),
        pytest.param(("--no-such-option",), 1, "passed 0, failed 1, skipped 0", id="wrong arguments"),
        pytest.param(("--version",), 0, "passed 0, failed 0, skipped 0", id="no session at all"),
    ],
)
def test_arguments_go_to_pytest(command_on, arguments, code, expected):
    ran = command_on(MIXED, *arguments)
    assert ran.code == code, ran.output
    assert ran.lines[-1].rpartition(" in ")[0] == expected
    assert LAST_LINE.fullmatch(ran.lines[-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("arguments", [pytest.param((), id="parts"), pytest.param(("tests/unit",), id="arguments")])
def test_an_interrupt_ends_everything(running_command, tmp_path, number, arguments):
    with running_command({"tests/unit/test_it.py": HANGS}, *arguments) as process:
        pid = until_written(tmp_path / "pid")
        process.send_signal(number)
        assert process.wait(60) == 130
    assert not is_alive(pid)
    lines = (tmp_path / "output").read_text().splitlines()
    assert lines[-2:-1] == ["interrupted"]
    assert LAST_LINE.fullmatch(lines[-1])


def test_a_second_interrupt_does_not_wait(running_command, tmp_path):
    with running_command({"tests/unit/test_it.py": SLOW_TO_END}) as process:
        pid = until_written(tmp_path / "pid")
        process.send_signal(signal.SIGINT)
        until((tmp_path / "late").exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert not is_alive(pid)


@pytest.mark.parametrize("arguments", [pytest.param((), id="parts"), pytest.param(("tests/unit",), id="arguments")])
def test_ctrl_c_on_a_terminal_ends_everything(terminal_command, tmp_path, arguments):
    with terminal_command({"tests/unit/test_it.py": HANGS}, *arguments) as (process, terminal):
        pid = until_written(tmp_path / "pid")
        os.write(terminal, b"\x03")
        shown = read_terminal(terminal)
        assert process.wait(60) == 130
    assert not is_alive(pid)
    assert "interrupted" in shown
    assert LAST_LINE.fullmatch(shown.splitlines()[-1].rpartition("\x1b[K")[2])


def test_tests_do_not_outlive_the_command(running_command, tmp_path):
    with running_command({"tests/unit/test_it.py": HANGS}) as process:
        pid = until_written(tmp_path / "pid")
        process.kill()
        process.wait()
    until(lambda: not is_alive(pid))


def read_terminal(terminal: int) -> str:
    """All that is written to a terminal until nobody has it open."""
    shown = b""
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 4096):
            shown += data
    return shown.decode()


def until_written(path: Path) -> int:
    until(lambda: path.exists() and path.read_text() != "")
    return int(path.read_text())


def until(is_so) -> None:
    """Another process makes it so; the deadline of the test ends the waiting."""
    while not is_so():
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Zombies of somebody else are not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
