"""What can go wrong with the CSI drivers of a node.

CsiNodeError            the Node or CSINode object could not be written, or a driver said something unusable
└── DriverNotAccepted   a driver that cannot be registered; its text is what the driver is notified of
"""

from klet.errors import KletError


class CsiNodeError(KletError):
    """The objects of this node could not be brought in line with its drivers."""


class DriverNotAccepted(CsiNodeError):
    """A driver that cannot be registered."""
