"""The key of the node: made once, readable by root only. A process that can read it can read what it sealed."""

import logging
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from klet.host.errors import FileError, FileMissing
from klet.host.files import read_bytes, write_atomic
from klet.offline.errors import KeyUnusable

logger = logging.getLogger(__name__)

KEY_SIZE: Final = 32
"""Bytes of an AES-256 key."""
MODE: Final = 0o600


def ensure_key(path: Path) -> bytes:
    """Return the key in this file; a new one if there is none. Blocks."""
    try:
        key = read_bytes(path)
    except FileMissing:
        return _make_key(path)
    except FileError as error:
        raise KeyUnusable(f"the key of the node cannot be read: {error}; remove the file to have a new one") from error
    if len(key) != KEY_SIZE:
        return _replace_key(path)
    if (mode := stat.S_IMODE(path.stat().st_mode)) != MODE:
        logger.warning("The key of the node was open to others", extra={"file": str(path), "mode": f"{mode:o}"})
        path.chmod(MODE)
    return key


def _replace_key(path: Path) -> bytes:
    """Write a new key. What the right one sealed never opens again; each such file is set aside when it is read."""
    aside = path.with_name(f"{path.name}.corrupt")
    logger.error(
        "The key of the node is damaged and was set aside",
        extra={"file": str(path), "rule": f"it must have {KEY_SIZE} bytes", "set_aside": str(aside)},
    )
    try:
        path.replace(aside)
    except OSError as error:
        raise KeyUnusable(f"the key of the node {path} is damaged and cannot be set aside: {error.strerror}") from error
    return _make_key(path)


def _make_key(path: Path) -> bytes:
    key = secrets.token_bytes(KEY_SIZE)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, key, mode=MODE)
        # What is sealed next must not outlive the only key that opens it.
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except (FileError, OSError) as error:
        raise KeyUnusable(f"the key of the node {path} cannot be made: {error}") from error
    return key
