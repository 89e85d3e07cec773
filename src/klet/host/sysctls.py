"""Kernel parameters as files below /proc/sys."""

from pathlib import Path

from klet.host.errors import MalformedFile
from klet.host.files import read_text, write_text


class Sysctls:
    """Reads and writes whole numbers. Names have dots: `vm.overcommit_memory`."""

    def __init__(self, *, root: Path = Path("/proc/sys")) -> None:
        self._root = root

    def read(self, name: str) -> int:
        text = read_text(self._path(name)).strip()
        try:
            return int(text)
        except ValueError:
            raise MalformedFile(f"kernel parameter {name} is {text!r}, expected a whole number") from None

    def write(self, name: str, value: int) -> None:
        write_text(self._path(name), str(value))

    def _path(self, name: str) -> Path:
        return self._root / name.replace(".", "/")
