"""Inputs that reached something new, and findings, as files in the cache of the user.

`$KLET_CACHE/fuzz/TARGET/corpus` (`~/.cache/klet` without that variable) holds the inputs, `…/findings` what was found.
"""

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from klet.errors import KletError
from klet.testing.fuzz.target import Recipe

MOST: Final = 4000
"""Inputs that are read back: those kept last."""
_LONGEST_FILE: Final = 4 << 20
RECIPE_SUFFIX: Final = ".growth.json"


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return where everything of the fuzzers is kept."""
    home = environment.get("KLET_CACHE")
    return (Path(home) if home else Path.home() / ".cache" / "klet") / "fuzz"


class CorpusError(KletError):
    """A file of the corpus that cannot be used."""


class FuzzFinding(Struct, frozen=True):
    """A flaw, the input that shows it and, if it is one of cost, how the input is made larger."""

    flaw: str
    data: bytes
    detail: str = ""
    recipe: Recipe | None = None


class NoCorpus:
    """Keeps nothing."""

    def load(self) -> list[bytes]:
        return []

    def keep(self, data: bytes) -> None:
        """Do nothing."""

    def save(self, _finding: FuzzFinding) -> Path | None:
        return None


class Corpus:
    """The files of one target."""

    def __init__(self, *, directory: Path, target: str) -> None:
        self._target = target
        self._inputs = directory / target / "corpus"
        self._findings = directory / target / "findings"

    def load(self) -> list[bytes]:
        """Return the inputs, oldest first."""
        if not self._inputs.is_dir():
            return []
        files = sorted(self._inputs.iterdir(), key=lambda file: (file.stat().st_mtime_ns, file.name))
        return [_read(file) for file in files[-MOST:]]

    def keep(self, data: bytes) -> None:
        self._inputs.mkdir(parents=True, exist_ok=True)
        (self._inputs / _name(data)).write_bytes(data)

    def save(self, finding: FuzzFinding) -> Path:
        """Write what shows the flaw, and beside it what it is and how to see it again."""
        self._findings.mkdir(parents=True, exist_ok=True)
        if finding.recipe is None:
            file = self._findings / _name(finding.data)
            file.write_bytes(finding.data)
        else:
            text = encode_recipe(finding.recipe)
            file = self._findings / f"{_name(text)}{RECIPE_SUFFIX}"
            file.write_bytes(text)
        again = f"scripts/fuzz {self._target} --replay {file}"
        file.with_name(f"{file.name}.txt").write_text(f"{finding.flaw}\n{again}\n\n{finding.detail}\n")
        return file


def read_finding(file: Path) -> bytes | Recipe:
    """Return what a finding's file holds."""
    data = _read(file)
    return decode_recipe(data) if file.name.endswith(RECIPE_SUFFIX) else data


def encode_recipe(recipe: Recipe) -> bytes:
    return json.dumps({name: b64encode(part).decode() for name, part in _parts(recipe)}, indent=1).encode()


def decode_recipe(data: bytes) -> Recipe:
    try:
        parts = msgspec.json.decode(data, type=dict[str, str])
        return Recipe(**{name: b64decode(text) for name, text in parts.items()})
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise CorpusError(f"not the file of a finding: {error}") from error


def _parts(recipe: Recipe) -> Sequence[tuple[str, bytes]]:
    return [(name, getattr(recipe, name)) for name in recipe.__struct_fields__]


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(_LONGEST_FILE)
    except OSError as error:
        raise CorpusError(f"cannot read {file}: {error.strerror}") from error
