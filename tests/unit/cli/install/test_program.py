from pathlib import Path

import pytest

from klet.cli.install.program import ProgramFacts, choose_program, warn_of_program


def facts(argument, executable, *, prefix=None, checkout="/opt/klet/lib/python3.11"):
    executable = Path(executable)
    prefix = Path(prefix) if prefix else executable.parents[1]
    return ProgramFacts(argument=Path(argument), executable=executable, prefix=prefix, checkout=Path(checkout))


@pytest.mark.parametrize(
    ("given", "programs", "expected"),
    [
        pytest.param(
            facts("/opt/klet/bin/klet", "/opt/klet/bin/python"),
            {"/opt/klet/bin/klet"},
            ("/opt/klet/bin/klet",),
            id="the console script that runs",
        ),
        pytest.param(
            facts("/opt/klet/lib/python3.11/site-packages/klet/__main__.py", "/opt/klet/bin/python"),
            {"/opt/klet/bin/klet"},
            ("/opt/klet/bin/klet",),
            id="python -m klet: the script beside its Python",
        ),
        pytest.param(
            facts("/src/klet/src/klet/__main__.py", "/src/klet/.venv/bin/python", checkout="/src/klet"),
            {"/src/klet/klet", "/src/klet/.venv/bin/klet"},
            ("/src/klet/klet",),
            id="a checkout: its launcher",
        ),
        pytest.param(
            facts("/venv/bin/klet", "/venv/bin/python", checkout="/src/klet"),
            {"/src/klet/klet", "/venv/bin/klet"},
            ("/venv/bin/klet",),
            id="an editable installation in another environment",
        ),
        pytest.param(
            facts("/x/klet/__main__.py", "/usr/bin/python3"),
            set(),
            ("/usr/bin/python3", "-P", "-m", "klet"),
            id="nothing but a module",
        ),
    ],
)
def test_choose_program(given, programs, expected):
    assert choose_program(given, is_program=lambda path: str(path) in programs) == expected


def test_links_are_followed(tmp_path):
    real = tmp_path / "venv/bin/klet"
    real.parent.mkdir(parents=True)
    real.touch()
    link = tmp_path / "bin/klet"
    link.parent.mkdir()
    link.symlink_to(real)
    assert choose_program(facts(link, "/usr/bin/python3"), is_program=Path.is_file) == (str(real),)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param("/opt/klet/bin/klet", None, id="a place that stays"),
        pytest.param("/tmp/klet/klet", "/tmp may be emptied at boot", id="a place that does not"),
        pytest.param("/tmpfiles/klet", None, id="a name that only begins like one"),
    ],
)
def test_warn_of_program(program, expected):
    warning = warn_of_program((program,))
    assert warning is None if expected is None else expected in warning
