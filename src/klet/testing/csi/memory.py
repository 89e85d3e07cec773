"""What the test driver knows of its volumes; in a file, if it is to outlive its process."""

from pathlib import Path

import msgspec


class _Known(msgspec.Struct):
    staged: dict[str, str] = {}
    published: dict[str, str] = {}
    sizes: dict[str, int] = {}
    calls: list[str] = []


class DriverMemory:
    """Staging path by volume, volume by target path, size by volume, and what was done, in its order."""

    def __init__(self, *, file: Path | None = None) -> None:
        self._file = file
        self._known = _Known()
        if file is not None and file.exists():
            self._known = msgspec.json.decode(file.read_bytes(), type=_Known)

    @property
    def staged(self) -> dict[str, str]:
        return self._known.staged

    @property
    def published(self) -> dict[str, str]:
        return self._known.published

    @property
    def sizes(self) -> dict[str, int]:
        return self._known.sizes

    @property
    def calls(self) -> list[str]:
        return self._known.calls

    def save(self) -> None:
        if self._file is not None:
            fresh = self._file.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(self._known))
            fresh.replace(self._file)
