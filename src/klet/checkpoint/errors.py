"""What can be wrong with a checkpoint.

CheckpointError            it cannot be read or written
├── CheckpointDamaged      its content breaks a rule of its format
└── CheckpointVersion      another klet wrote it, in a version that this one does not know
"""

from klet.errors import KletError


class CheckpointError(KletError):
    """A checkpoint that cannot be read or written."""


class CheckpointDamaged(CheckpointError):
    """The content breaks a rule; the message is the rule, without the file."""


class CheckpointVersion(CheckpointError):
    """The content is of a version that this klet does not know. The file stays where it is."""
