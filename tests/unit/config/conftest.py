"""Files in memory and the path to settings, for tests of the configuration."""

import errno
import json
from collections.abc import Callable, Mapping
from datetime import timedelta

import msgspec
import pytest

from klet.api.quantity import Quantity
from klet.api.times import Duration
from klet.config.command_line import ParsedCommand, Settings, parse_command_line
from klet.config.configuration import API_VERSION, KIND, KubeletConfiguration
from klet.config.configuration_flags import get_field
from klet.config.decode import encode
from klet.config.files import DirectoryEntry, load_configuration

STANDALONE = {
    "authentication": {"webhook": {"enabled": False}, "anonymous": {"enabled": True}},
    "authorization": {"mode": "AlwaysAllow"},
}


class MemoryFiles:
    """A disk of texts; directories exist through the files in them."""

    def __init__(self, files: Mapping[str, str | bytes]) -> None:
        self._files = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}

    def read(self, path: str) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self._files[path]

    def list(self, path: str) -> tuple[DirectoryEntry, ...]:
        prefix = path.rstrip("/") + "/"
        names: dict[str, bool] = {}
        for file in self._files:
            if file.startswith(prefix):
                name, slash, _ = file.removeprefix(prefix).partition("/")
                names[name] = bool(slash)
        if not names:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        # A disk lists in no particular order.
        return tuple(DirectoryEntry(name, is_directory) for name, is_directory in sorted(names.items(), reverse=True))


def document(fields: Mapping[str, object]) -> str:
    """The text of a configuration file, from paths or whole objects."""
    root: dict[str, object] = {"apiVersion": API_VERSION, "kind": KIND}
    for path, value in fields.items():
        *parents, last = path.split(".")
        inner = root
        for name in parents:
            inner = inner.setdefault(name, {})  # type: ignore[assignment]
        inner[last] = value
    return json.dumps(root)


def wire(value: object) -> object:
    """A value of a configuration as JSON holds it."""
    if isinstance(value, timedelta):
        return Duration.of(value).wire()
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return encode(value, keep_zero=frozenset({"numaNode"}))
    if isinstance(value, Mapping):
        return {key: wire(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [wire(inner) for inner in value]
    return value


@pytest.fixture(scope="session")
def as_wire() -> Callable[[object], object]:
    return wire


@pytest.fixture(scope="session")
def as_document() -> Callable[[Mapping[str, object]], str]:
    return document


@pytest.fixture(scope="session")
def load() -> Callable[..., KubeletConfiguration]:
    """Load a configuration file from paths and values."""

    def load(fields: Mapping[str, object], gates: Mapping[str, bool] | None = None) -> KubeletConfiguration:
        return load_configuration("/etc/k.yaml", document(fields).encode(), flag_gates=gates or {}).config

    return load


@pytest.fixture(scope="session")
def read_wire() -> Callable[[KubeletConfiguration, str], object]:
    """Read a field by its wire path, as JSON holds it; a field of an absent object is None."""

    def read(config: KubeletConfiguration, path: str) -> object:
        if path.startswith("tracing.") and config.tracing is None:
            return None
        return wire(get_field(config, path))

    return read


@pytest.fixture(scope="session")
def parse() -> Callable[..., ParsedCommand]:
    """Parse a command line over files in memory."""

    def parse(
        *argv: str, files: Mapping[str, str | bytes] | None = None, cwd: str = "/here", cgroup_v1: bool = False
    ) -> ParsedCommand:
        disk = MemoryFiles(files or {})
        return parse_command_line(
            argv, read_file=disk.read, list_dir=disk.list, working_directory=cwd, cgroup_v1=cgroup_v1
        )

    return parse


@pytest.fixture(scope="session")
def parse_directory_error() -> Callable[[OSError], ParsedCommand]:
    """Parse a command line whose directory of drop-ins cannot be listed."""

    def parse(error: OSError) -> ParsedCommand:
        def refuse(path: str) -> tuple[DirectoryEntry, ...]:
            raise error

        return parse_command_line(["--config-dir=/k.d"], read_file=MemoryFiles({}).read, list_dir=refuse)

    return parse


@pytest.fixture(scope="session")
def settle(parse: Callable[..., ParsedCommand]) -> Callable[..., Settings]:
    """Parse a command line that must lead to settings."""

    def settle(*argv: str, **surroundings: object) -> Settings:
        settings = parse(*argv, **surroundings)
        assert isinstance(settings, Settings)
        return settings

    return settle


@pytest.fixture(scope="session")
def standalone() -> Mapping[str, object]:
    """Fields that a configuration file needs when there is no API server."""
    return STANDALONE
