"""The only code of the package that touches the disk."""

import os
from collections.abc import Sequence
from pathlib import Path

from klet.config.command_line import ParsedCommand, parse_command_line
from klet.config.credential_provider import CredentialProviders, load_credential_providers, select_config_files
from klet.config.errors import ConfigError
from klet.config.files import DirectoryEntry, quote_os_error


def load_command_line(argv: Sequence[str], *, cgroup_v1: bool) -> ParsedCommand:
    """Parse the arguments of `klet run` with the files of this machine."""
    return parse_command_line(
        argv,
        read_file=read_file,
        list_dir=list_directory,
        working_directory=str(Path.cwd()),
        cgroup_v1=cgroup_v1,
    )


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
    return Path(path).read_bytes()


def list_directory(path: str) -> tuple[DirectoryEntry, ...]:
    with os.scandir(path) as entries:
        return tuple(DirectoryEntry(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
