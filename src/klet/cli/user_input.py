"""Reads what the user gave to `klet up`: files, directories and standard input, with all that is wrong in them."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import BinaryIO

from msgspec import Struct

from klet.cli.apply_plan import ManifestFile, find_duplicates
from klet.cli.manifests import EXTENSIONS, STDIN, ManifestChecker, ReadManifests, expand_paths, read_manifests

Signature = tuple[int, int, int]


class Input(Struct, frozen=True):
    """The user's manifests as read at one moment."""

    origins: tuple[ManifestFile, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    directories: tuple[str, ...]
    signatures: Mapping[str, Signature | None]
    """How the files looked before they were read; a later change of a file changes this."""


def read_input(arguments: Sequence[str], *, check: ManifestChecker, is_strict: bool, stdin: BinaryIO) -> Input:
    files, directories = expand_paths(arguments)
    signatures = read_signatures(arguments)
    found = [_read_one(path, check=check, is_strict=is_strict, stdin=stdin) for path in files]
    origins = tuple(one.origin for one in found)
    errors = [error for one in found for error in one.errors]
    if "" in arguments:
        errors.append("FILE: an empty name means no file")
    # More likely a slip than the wish to remove every pod that came from there.
    empty = {path for path in directories if not any(PurePath(file).parent == PurePath(path) for file in files)}
    wanted = ", ".join(f"*{ending}" for ending in EXTENSIONS)
    errors += [f"{path}: no manifest in this directory ({wanted})" for path in sorted(empty)]
    duplicates = find_duplicates(origins)
    return Input(
        # Which of two is meant is the user's to say; neither file is applied.
        origins=() if duplicates else origins,
        errors=(*errors, *duplicates),
        warnings=tuple(warning for one in found for warning in one.warnings),
        directories=tuple(path for path in directories if path not in empty),
        signatures=signatures,
    )


def read_signatures(arguments: Sequence[str]) -> dict[str, Signature | None]:
    """Return what shows that a file changed, appeared or was removed."""
    files, _ = expand_paths(arguments)
    return {path: _signature(Path(path)) for path in files}


def _signature(path: Path) -> Signature | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _read_one(path: str, *, check: ManifestChecker, is_strict: bool, stdin: BinaryIO) -> ReadManifests:
    shown = "stdin" if path == STDIN else path
    try:
        content = stdin.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        return ReadManifests(ManifestFile(shown, (), is_complete=False), (f"{shown}: {error.strerror}",))
    found = read_manifests(shown, content, check=check, is_strict=is_strict)
    if path == STDIN and not found.origin.pods and not found.errors:
        # A program that failed before the pipe writes nothing; that is no wish to remove what came before.
        return ReadManifests(ManifestFile(shown, (), is_complete=False), ("stdin: no manifest was written to it",))
    return found
