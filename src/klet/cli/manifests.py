"""The user's manifests: files into documents, documents into pods, and everything that is wrong with them.

A bad document never hides a good one. Each problem names the user's file, the document and the field.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import BinaryIO

import msgspec
from msgspec import Struct

from klet.api.codec import decode
from klet.api.pod import Pod
from klet.api.schema import unknown_fields
from klet.cli.apply_plan import ManifestFile, PodKey, PodManifest, find_duplicates
from klet.config.document import Json, JsonObject, parse_document
from klet.config.errors import ConfigError

STDIN = "-"
EXTENSIONS = (".yaml", ".yml", ".json")
DIGEST_ANNOTATION = "klet.dev/manifest"
"""On every pod that `klet up` applied: which content the agent has taken up."""

_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
# Possessive quantifiers (`*+`): otherwise a comment matches in many ways, and backtracking takes exponential time.
_EMPTY = re.compile(r"(?:\s|#.*+|---|\.\.\.)*+")

ManifestChecker = Callable[[bytes], Sequence[str]]
"""Says what is wrong with the manifest of one pod, each problem beginning with its field."""
Signature = tuple[int, int, int]


class ReadManifests(Struct, frozen=True):
    """What was found in one of the user's files."""

    origin: ManifestFile
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class DocumentText(Struct, frozen=True):
    """One document of a file."""

    number: int
    text: str
    lines_before: int
    """In the file."""


def read_manifests(path: str, data: bytes, *, check: ManifestChecker, is_strict: bool = False) -> ReadManifests:
    """Read all pods of a file. With `is_strict`, a field that is unknown or written twice is an error."""
    pods: list[PodManifest] = []
    errors: list[str] = []
    warnings: list[str] = []
    try:
        documents = split_documents(data.decode())
    except UnicodeDecodeError as error:
        return ReadManifests(ManifestFile(path, (), is_complete=False), (f"{path}: not UTF-8 (byte {error.start})",))
    for document in documents:
        where = f"{path}: document {document.number}"
        try:
            parsed = parse_document(document.text.encode(), lines_before=document.lines_before)
        except ConfigError as error:
            errors.append(f"{where}: {error}")
            continue
        strict_problems = [f"{where}: {field}: written twice, the last one counts" for field in parsed.duplicates]
        found = list(_objects(parsed.fields))
        strict_problems += [f"{where}: {prefix}{text}" for prefix, value in found for text in _unknown(value)]
        if is_strict and strict_problems:
            errors += strict_problems
            continue
        warnings += strict_problems
        for prefix, value in found:
            problems = _wrong_kind(value) or check(content := encode_manifest(value))
            if problems:
                errors += [f"{where}: {prefix}{text}" for text in problems]
            else:
                pods.append(PodManifest(_key(content), document.number, content))
    return ReadManifests(ManifestFile(path, tuple(pods), is_complete=not errors), tuple(errors), tuple(warnings))


def split_documents(text: str) -> list[DocumentText]:
    """Cut a stream at its `---` lines, so that one broken document does not make the others fail."""
    starts = [0, *(match.start() for match in _SEPARATOR.finditer(text))]
    pieces = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    documents: list[DocumentText] = []
    lines = 0
    for piece in pieces:
        if not _EMPTY.fullmatch(piece):
            documents.append(DocumentText(len(documents) + 1, piece, lines_before=lines))
        lines += piece.count("\n")
    return documents


def encode_manifest(value: JsonObject) -> bytes:
    """Encode the manifest for the agent: JSON, marked with a digest of itself. Comments and layout do not matter."""
    digest = manifest_digest(value)
    metadata = _mapping(value.get("metadata"))
    annotations = {**_mapping(metadata.get("annotations")), DIGEST_ANNOTATION: digest}
    marked = {**value, "metadata": {**metadata, "annotations": annotations}}
    return msgspec.json.encode(marked, order="sorted")


def manifest_digest(value: JsonObject) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:16]


def digest_of(content: bytes) -> str:
    """Return the digest that an encoded manifest carries."""
    return decode(Pod, content).metadata.annotations[DIGEST_ANNOTATION]


def expand_paths(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files, and the directories among the arguments; a directory means the manifests in it."""
    files: list[str] = []
    directories: list[str] = []
    for argument in arguments:
        if not argument:
            continue  # an empty argument is not the working directory
        if argument == STDIN:
            files.append(argument)
            continue
        # Links are not followed: the name is what the user means, and /dev/fd/N leads to no other name.
        path = Path(os.path.abspath(argument))  # noqa: PTH100 - resolve() would follow them
        if path.is_dir():
            directories.append(str(path))
            files += [str(file) for file in sorted(path.iterdir()) if file.suffix in EXTENSIONS and file.is_file()]
        else:
            files.append(str(path))
    return list(dict.fromkeys(files)), directories


def _objects(fields: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield the object itself, or those of a list, with the path to each."""
    items = fields.get("items")
    if fields.get("kind") not in ("List", "PodList") or not isinstance(items, list):
        yield "", fields
        return
    for index, item in enumerate(items):
        # The items of a PodList need not say again what they are.
        implied = {"apiVersion": "v1", "kind": "Pod"} if fields.get("kind") == "PodList" else {}
        yield f"items[{index}].", {**implied, **_mapping(item)}


def _wrong_kind(value: JsonObject) -> Sequence[str]:
    kind, version = value.get("kind"), value.get("apiVersion")
    if not kind:
        return ["kind: Required value: klet runs objects of kind Pod"]
    if (version, kind) != ("v1", "Pod"):
        return [f"kind: {version} {kind} is not supported: klet runs v1 Pod"]
    return ()


def _unknown(value: JsonObject) -> Iterator[str]:
    if value.get("kind") != "Pod":
        return
    for field, nearest in unknown_fields(Pod, value):
        yield f"{field}: unknown field" + (f", did you mean {nearest!r}?" if nearest else "")


def _key(content: bytes) -> PodKey:
    metadata = decode(Pod, content).metadata
    return PodKey(metadata.namespace or "default", metadata.name)


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


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
    # More likely a mistake than a request to remove every pod that came from there.
    empty = {path for path in directories if not any(PurePath(file).parent == PurePath(path) for file in files)}
    wanted = ", ".join(f"*{ending}" for ending in EXTENSIONS)
    errors += [f"{path}: no manifest in this directory ({wanted})" for path in sorted(empty)]
    duplicates = find_duplicates(origins)
    return Input(
        # The user has to decide which is meant; until then no file is applied.
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
        # The command that feeds the pipe may have failed: this is no request to remove the pods applied before.
        return ReadManifests(ManifestFile(shown, (), is_complete=False), ("stdin: no manifest was written to it",))
    return found
