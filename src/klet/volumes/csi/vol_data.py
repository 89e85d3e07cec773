"""`vol_data.json`: what a volume is, next to where it is staged or published, for the time after a restart. Pure.

The bytes are upstream's, so that either agent can take down what the other has set up.
"""

import json
from typing import Final

import msgspec
from msgspec import Struct

from klet.volumes.csi.places import DATA_FILE
from klet.volumes.errors import VolumeSetupError

LONGEST: Final = 1024 * 1024
"""Bytes of a file; upstream's API server takes no larger object, so no volume needs more."""
PERSISTENT: Final = "Persistent"
EPHEMERAL: Final = "Ephemeral"
# What Go's encoder escapes besides what JSON requires.
_ESCAPES: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


class BadVolumeData(VolumeSetupError):
    """A file that does not say what the volume is."""


class VolumeData(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is known of a volume on disk. Files of other versions have fewer keys, or more."""

    attachment_id: str = msgspec.field(name="attachmentID", default="")
    driver_name: str = ""
    node_name: str = ""
    se_linux_mount_context: str = msgspec.field(name="seLinuxMountContext", default="")
    spec_vol_id: str = msgspec.field(name="specVolID", default="")
    volume_handle: str = ""
    volume_lifecycle_mode: str = ""


def check_named(data: VolumeData) -> None:
    """Raise BadVolumeData for a file that does not say which volume of which driver it is about."""
    if not data.driver_name or not data.volume_handle:
        raise BadVolumeData(f"{DATA_FILE} has no driverName or no volumeHandle")


def encode_volume_data(data: VolumeData) -> bytes:
    """Return the file: one line, keys sorted."""
    found = msgspec.to_builtins(data)
    text = json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":")).translate(_ESCAPES)
    encoded = text.encode("utf-8", "replace") + b"\n"
    if len(encoded) > LONGEST:
        raise BadVolumeData(f"{DATA_FILE} would be larger than {LONGEST} bytes")
    return encoded


def decode_volume_data(content: bytes) -> VolumeData:
    """Read a file. Every value must be a string, also of keys that mean nothing here."""
    if len(content) > LONGEST:
        raise BadVolumeData(f"{DATA_FILE} is larger than {LONGEST} bytes")
    try:
        found = msgspec.json.decode(content, type=dict[str, str])
        return msgspec.convert(found, VolumeData)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadVolumeData(f"failed to parse {DATA_FILE}: {str(error)[:256]}") from error
