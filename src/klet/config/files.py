"""Configuration files as text to configurations: kinds and versions, strictness, drop-ins. Reads nothing itself."""

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from klet.config.configuration import API_VERSION, KIND, KubeletConfiguration
from klet.config.decode import Decoded, decode, encode
from klet.config.defaults import KEEPS_ZERO, apply_defaults, apply_eviction_defaults, resolve_paths
from klet.config.document import Document, Json, JsonObject, parse_document
from klet.config.errors import ConfigError, prefixed
from klet.config.gates import FeatureGates, resolve_gates
from klet.config.places import MASK, hide_credentials

S = TypeVar("S", bound=msgspec.Struct)

_SIBLING_KINDS = frozenset({"CredentialProviderConfig", "SerializedNodeConfigSource"})
_DROP_IN_EXTENSION = ".conf"


class DirectoryEntry(Struct, frozen=True):
    """A name in a directory; a link to a directory is not a directory."""

    name: str
    is_directory: bool


ReadFile: TypeAlias = Callable[[str], bytes]
ListDirectory: TypeAlias = Callable[[str], Sequence[DirectoryEntry]]


class LoadedFile(Struct, frozen=True):
    """A configuration file with its defaults, and what was forgiven in it."""

    config: KubeletConfiguration
    warnings: tuple[str, ...] = ()


def load_configuration(path: str, content: bytes, *, flag_gates: Mapping[str, bool]) -> LoadedFile:
    """Turn the text of `--config` into a configuration; the path is absolute."""
    nested = f"failed to load Kubelet config file {path}, error "
    with prefixed(f"failed to load kubelet config file, path: {path}, error: {nested}"):
        return _load_configuration(path, content, flag_gates)


def merge_drop_ins(
    config: KubeletConfiguration, drop_ins: Iterable[tuple[str, bytes]], *, flag_gates: Mapping[str, bool]
) -> KubeletConfiguration:
    """Lay drop-in files over a configuration, one after the other, then default what they left empty."""
    merged: JsonObject = encode_configuration(config)
    for path, content in drop_ins:
        nested = f"failed to load drop-in kubelet config file {path}, error "
        with prefixed(f"failed to load kubelet dropin file, path: {path}, error: {nested}"):
            merged = merge_patch(merged, _read_drop_in(path, content))
    return finish_document(merged, flag_gates=flag_gates)


def list_drop_ins(directory: str, list_directory: ListDirectory) -> tuple[str, ...]:
    """Return the drop-in files under a directory, in the order in which they apply."""
    found: list[str] = []
    for entry in sorted(list_directory(directory), key=lambda entry: entry.name):
        path = posixpath.join(directory, entry.name)
        if entry.is_directory:
            found.extend(list_drop_ins(path, list_directory))
        elif _extension(entry.name) == _DROP_IN_EXTENSION:
            found.append(path)
    return tuple(found)


def finish_document(fields: JsonObject, *, flag_gates: Mapping[str, bool]) -> KubeletConfiguration:
    """Default a well-typed document and make it a configuration; unknown fields are dropped."""
    chosen = decode(without_type(fields), KubeletConfiguration).value.feature_gates
    gates = _defaulting_gates({**flag_gates, **chosen})
    return decode(apply_defaults(without_type(fields), gates=gates), KubeletConfiguration).value


def encode_configuration(config: KubeletConfiguration) -> dict[str, Json]:
    """Return the configuration as upstream writes it (`/configz`), without kind and version."""
    return encode(config, keep_zero=KEEPS_ZERO)


def mask_secrets(config: KubeletConfiguration) -> KubeletConfiguration:
    """Return a copy to show: the headers for the URL of static pods, and URLs themselves, may hold passwords."""
    tracing = config.tracing
    if tracing is not None and tracing.endpoint is not None:
        tracing = replace(tracing, endpoint=hide_credentials(tracing.endpoint))
    return replace(
        config,
        static_pod_url=hide_credentials(config.static_pod_url),
        static_pod_url_header={
            name: tuple(MASK for _ in values) for name, values in config.static_pod_url_header.items()
        },
        tracing=tracing,
    )


def merge_patch(target: JsonObject, patch: JsonObject) -> dict[str, Json]:
    """Apply a patch of RFC 7386: objects merge key by key, null removes, everything else replaces."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            current = merged.get(key)
            merged[key] = merge_patch(current if isinstance(current, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def without_type(fields: JsonObject) -> dict[str, Json]:
    return {key: value for key, value in fields.items() if key not in ("apiVersion", "kind")}


def describe_strict_problems(document: Document, decoded: Decoded[S]) -> str:
    """Return what a strict decoder objects to: unknown fields and fields written twice; empty if there are none."""
    names = [field.encode_name for field in msgspec.structs.fields(type(decoded.value))]
    problems = [f'duplicate field "{path}"' for path in document.duplicates]
    problems += [f'unknown field "{path}"{_suggestion(path, names)}' for path in decoded.unknown]
    return f"strict decoding error: {', '.join(problems)}" if problems else ""


def require_type(fields: JsonObject, *, version: str, kind: str) -> None:
    """Refuse a document of another kind or version."""
    found_kind, found_version = fields.get("kind"), fields.get("apiVersion")
    for name, value in (("Kind", found_kind), ("apiVersion", found_version)):
        if not isinstance(value, str) or not value:
            raise ConfigError(
                f"failed to decode: Object '{name}' is missing: write kind: {kind}, apiVersion: {version}"
            )
    if (found_version, found_kind) != (version, kind):
        raise ConfigError(
            f'failed to decode: no kind "{found_kind}" is registered for version "{found_version}": '
            f"write kind: {kind}, apiVersion: {version}"
        )


def quote_os_error(error: OSError, path: str, *, operation: str = "open") -> str:
    """Return an operating-system error as upstream words it."""
    return f"{operation} {path}: {(error.strerror or str(error)).lower()}"


def _load_configuration(path: str, content: bytes, flag_gates: Mapping[str, bool]) -> LoadedFile:
    if not content:
        raise ConfigError(f'kubelet config file "{path}" was empty')
    document = _parse(content)
    fields = document.fields
    if fields.get("apiVersion") == API_VERSION and str(fields.get("kind")) in _SIBLING_KINDS:
        raise ConfigError(f"failed to cast object to KubeletConfiguration, unexpected type: {fields['kind']}")
    require_type(fields, version=API_VERSION, kind=KIND)
    decoded = _decode(without_type(fields))
    problems = describe_strict_problems(document, decoded)
    warnings = (f"Using lenient decoding as strict decoding failed, path: {path}, error: {problems}",)
    settled = apply_eviction_defaults(resolve_paths(_without_nulls(fields), directory=posixpath.dirname(path)))
    return LoadedFile(finish_document(settled, flag_gates=flag_gates), warnings if problems else ())


def _read_drop_in(path: str, content: bytes) -> JsonObject:
    if not content:
        raise ConfigError(f'kubelet config file "{path}" was empty')
    document = _parse(content)
    fields = document.fields
    kind, version = fields.get("kind"), fields.get("apiVersion")
    if not isinstance(kind, str) or not kind:
        raise ConfigError(f"failed to decode: Object 'Kind' is missing: write kind: {KIND}, apiVersion: {API_VERSION}")
    if (version, kind) != (API_VERSION, KIND):
        raise ConfigError(f"unknown apiVersion/kind: {version}, Kind={kind}")
    if document.duplicates:
        names = ", ".join(f'duplicate field "{name}"' for name in document.duplicates)
        raise ConfigError(f"failed to decode: strict decoding error: {names}")
    _decode(without_type(fields))
    return without_type(fields)


def _parse(content: bytes) -> Document:
    with prefixed("failed to decode: "):
        return parse_document(content)


def _decode(fields: JsonObject) -> Decoded[KubeletConfiguration]:
    with prefixed("failed to decode: "):
        return decode(fields, KubeletConfiguration)


def _defaulting_gates(overrides: Mapping[str, bool]) -> FeatureGates:
    with prefixed("failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "):
        return resolve_gates(overrides)


def _without_nulls(fields: JsonObject) -> dict[str, Json]:
    return {
        key: _without_nulls(value) if isinstance(value, dict) else value
        for key, value in fields.items()
        if value is not None
    }


def _suggestion(path: str, names: Sequence[str]) -> str:
    # The names are those of the outermost object; a field further in would be compared with the wrong ones.
    near = get_close_matches(path, names, n=1, cutoff=0.75) if path.isalnum() else []
    return f' (did you mean "{near[0]}"?)' if near else ""


def _extension(name: str) -> str:
    # Go takes everything from the last dot, also of a name that begins with it.
    return f".{name.rpartition('.')[2]}" if "." in name else ""
