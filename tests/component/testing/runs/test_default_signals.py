"""Programs under test have their default signals, as in a shell's foreground, however the tests were started."""

import pytest

pytestmark = pytest.mark.deadline(300)
SIGNALS = """
    import subprocess

    def test_signals():
        status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
        signals = dict(line.split(":") for line in status.splitlines() if line.startswith("Sig"))
        assert (int(signals["SigIgn"], 16), int(signals["SigBlk"], 16)) == (0, 0)
"""
FILES = {f"tests/{part}/test_it.py": SIGNALS for part in ("unit", "integration", "simulation")}
# As sh starts what ends with "&", as nohup does, and worse.
BACKGROUND = ("env", "--ignore-signal=INT,QUIT,HUP,TERM,USR1,CHLD", "--block-signal=INT,ALRM,USR2")


@pytest.mark.parametrize("started", [pytest.param((), id="foreground"), pytest.param(BACKGROUND, id="background")])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        pytest.param("pytest", ("tests/unit",), id="pytest"),
        pytest.param("command", ("tests/unit",), id="the test command with arguments"),
        pytest.param("command", (), id="the parts of the test command"),
    ],
)
def test_default_signals(start, command, arguments, started):
    ran = start(FILES, command, *arguments, started=started)
    assert ran.code == 0, ran.output


def test_what_hangs_up_the_shell_does_not_end_tests_under_nohup(start):
    hung_up = "import os, signal\n\ndef test_it():\n    os.kill(os.getpid(), signal.SIGHUP)\n"
    ran = start({"test_it.py": hung_up}, "pytest", started=("env", "--ignore-signal=HUP"))
    assert ran.outcomes == {"test_it": "passed"}
