"""State on disk that outlives klet: atomic, checksummed, versioned; a damaged file is set aside, never dropped.

`file` keeps one file, `envelope` is the format of klet's own state, `upstream` holds the formats of the Go kubelet,
whose checksums need `dump`.
"""

from klet.checkpoint.envelope import Envelope
from klet.checkpoint.errors import CheckpointDamaged, CheckpointError, CheckpointVersion
from klet.checkpoint.file import Absent, CheckpointFile, CheckpointFormat, Damaged, Found, Loaded, record_damage

__all__ = [
    "Absent",
    "CheckpointDamaged",
    "CheckpointError",
    "CheckpointFile",
    "CheckpointFormat",
    "CheckpointVersion",
    "Damaged",
    "Envelope",
    "Found",
    "Loaded",
    "record_damage",
]
