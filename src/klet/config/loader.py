"""The only code of the package that touches the disk."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from klet.config.command_line import ParsedCommand, Settings, parse_command_line
from klet.config.credential_provider import CredentialProviders, load_credential_providers, select_config_files
from klet.config.errors import ConfigError, prefixed, warned
from klet.config.files import DirectoryEntry, quote_os_error
from klet.config.flags import KubeletFlags

LARGEST_FILE: Final = 1 << 20
"""Bytes; a hundred times what a configuration needs. More is another file, and reading it would take minutes."""
GATE_OF_TOKENS: Final = "KubeletServiceAccountTokenForCredentialProviders"


def load_command_line(argv: Sequence[str], *, cgroup_v1: bool) -> ParsedCommand:
    """Parse the arguments of `klet run` with the files of this machine."""
    parsed = parse_command_line(
        argv,
        read_file=read_file,
        list_dir=list_directory,
        working_directory=_working_directory(),
        cgroup_v1=cgroup_v1,
    )
    if isinstance(parsed, Settings):
        with warned(parsed.warnings), prefixed("failed to run Kubelet: Failed to register CRI auth plugins: "):
            providers = check_credential_providers(parsed.flags, use_tokens=parsed.gates.enabled(GATE_OF_TOKENS))
        return replace(parsed, credential_providers=providers)
    return parsed


def check_credential_providers(flags: KubeletFlags, *, use_tokens: bool) -> CredentialProviders | None:
    """Return the configuration of credential providers, None without any.

    Refuses one that cannot be read, or whose programs are not there.
    """
    path, directory = flags.image_credential_provider_config, flags.image_credential_provider_bin_dir
    if not path and not directory:
        return None
    with prefixed("--image-credential-provider-config: "):
        loaded = read_credential_providers(path, use_tokens=use_tokens)
    with prefixed("--image-credential-provider-bin-dir: "):
        if not Path(directory).is_dir():
            raise ConfigError(f"plugin binary directory {directory} did not exist")
        for provider in loaded.config.providers:
            program = Path(directory) / provider.name
            if not program.is_file() or not os.access(program, os.X_OK):
                raise ConfigError(f"plugin binary executable {program} did not exist or may not be executed")
    return loaded


def read_credential_providers(path: str, *, use_tokens: bool) -> CredentialProviders:
    """Read `--image-credential-provider-config`: a file, or a directory of files."""
    if not path:
        raise ConfigError("credential provider config path is empty")
    try:
        if Path(path).is_dir():
            names = (entry.name for entry in list_directory(path) if not entry.is_directory)
            files = select_config_files(names, directory=path)
        else:
            files = (path,)
        contents = [(name, read_file(name)) for name in files]
    except OSError as error:
        raise ConfigError(f'unable to access path "{path}": {quote_os_error(error, path)}') from error
    return load_credential_providers(contents, use_tokens=use_tokens)


def read_file(path: str) -> bytes:
    """Read a whole file of a sensible size."""
    with Path(path).open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise OSError(errno.EFBIG, f"file too large: more than {LARGEST_FILE} bytes, so it must be another file", path)
    return content


def list_directory(path: str) -> tuple[DirectoryEntry, ...]:
    with os.scandir(path) as entries:
        return tuple(DirectoryEntry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        raise ConfigError(f"the working directory is gone ({error.strerror}): start klet in another one") from error
