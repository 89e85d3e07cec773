"""The mark on files that `klet install` writes: it shows whose they are, and whether somebody changed them since."""

import hashlib
from enum import Enum, auto
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.host.errors import file_error

MARK: Final = "# Written by `klet install`; `klet uninstall` removes it. Changes here are kept, and need --force later."
_SEAL: Final = "# klet-install sha256:"
_SHEBANG: Final = "#!"
_FIRST_LINES: Final = 3
_LONGEST: Final = 64 << 10
"""No file of klet's is longer; a kubelet is."""


class FileState(Enum):
    """Whose a file is."""

    ABSENT = auto()
    OURS = auto()
    CHANGED = auto()
    """Written by klet, and changed by somebody else."""
    FOREIGN = auto()


class FoundFile(Struct, frozen=True):
    """What is at a path."""

    state: FileState
    text: str = ""
    """Of a file with klet's mark."""


def seal(text: str) -> str:
    """Return the text with klet's mark and its checksum in the first lines."""
    first, rest = _after_shebang(text)
    return f"{first}{MARK}\n{_SEAL}{_digest(text)}\n{rest}"


def judge(text: str) -> FileState:
    """Return whose a file with this text is."""
    lines = text.splitlines(keepends=True)
    sealed = [index for index, line in enumerate(lines[:_FIRST_LINES]) if line.startswith(_SEAL)]
    if not sealed or sealed[0] == 0:
        return FileState.FOREIGN
    # The mark is the line before, whatever words another release of klet has for it.
    body = "".join(lines[: sealed[0] - 1] + lines[sealed[0] + 1 :])
    is_whole = lines[sealed[0]].removeprefix(_SEAL).strip() == _digest(body)
    return FileState.OURS if is_whole else FileState.CHANGED


def find_file(path: Path) -> FoundFile:
    """Look at a path. A link, a directory and a program are somebody else's."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return FoundFile(FileState.FOREIGN)
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST + 1)
    except FileNotFoundError:
        return FoundFile(FileState.ABSENT)
    except OSError as error:
        raise file_error("read", path, error) from error
    if len(content) > _LONGEST or b"\0" in content:
        return FoundFile(FileState.FOREIGN)
    text = content.decode(errors="replace")
    state = judge(text)
    return FoundFile(state, "" if state is FileState.FOREIGN else text)


def _after_shebang(text: str) -> tuple[str, str]:
    if not text.startswith(_SHEBANG):
        return "", text
    first, newline, rest = text.partition("\n")
    return first + newline, rest


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
