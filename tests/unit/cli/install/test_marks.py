import pytest

from klet.cli.install.marks import FileState, FoundFile, find_file, judge, seal

UNIT = "[Unit]\nDescription=x\n"
SCRIPT = "#!/bin/sh\nexec x\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(seal(UNIT), FileState.OURS, id="as it was written"),
        pytest.param(seal(SCRIPT), FileState.OURS, id="a script as it was written"),
        pytest.param(seal(""), FileState.OURS, id="an empty text"),
        pytest.param(seal(UNIT) + "# mine\n", FileState.CHANGED, id="a line was added"),
        pytest.param(seal(UNIT).replace("=x", "=y"), FileState.CHANGED, id="a value was changed"),
        pytest.param(seal(SCRIPT).replace("/bin/sh", "/bin/bash"), FileState.CHANGED, id="the first line was changed"),
        pytest.param(seal(UNIT).replace("Written", "Made"), FileState.OURS, id="written by a klet with other words"),
        pytest.param(UNIT, FileState.FOREIGN, id="no mark"),
        pytest.param("", FileState.FOREIGN, id="an empty file"),
        pytest.param(UNIT + seal(UNIT), FileState.FOREIGN, id="a mark that is not at the beginning"),
    ],
)
def test_judge(text, expected):
    assert judge(text) is expected


def test_a_script_keeps_its_first_line():
    assert seal(SCRIPT).startswith("#!/bin/sh\n# Written by")
    assert seal(SCRIPT).endswith("\nexec x\n")


def test_what_is_at_a_path(tmp_path):
    own, link, program = tmp_path / "own", tmp_path / "link", tmp_path / "program"
    assert find_file(own) == FoundFile(FileState.ABSENT)
    own.write_text(seal(UNIT))
    assert find_file(own) == FoundFile(FileState.OURS, seal(UNIT))
    link.symlink_to(own)
    assert find_file(link).state is FileState.FOREIGN
    program.write_bytes(b"\x7fELF\0" + seal(UNIT).encode())
    assert find_file(program).state is FileState.FOREIGN
    program.write_text(seal("x" * (1 << 17)))
    assert find_file(program).state is FileState.FOREIGN
    assert find_file(tmp_path).state is FileState.FOREIGN
