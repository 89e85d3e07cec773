"""What can go wrong with what is kept for the time without an API server.

OfflineError
├── SealBroken   sealed bytes that do not open: another key, another owner, or damage
└── KeyUnusable  the key of the node cannot be read or made
"""

from klet.errors import KletError


class OfflineError(KletError):
    """Base of the errors of this package."""


class SealBroken(OfflineError):
    """Sealed bytes that do not open."""


class KeyUnusable(OfflineError):
    """There is no key to seal with."""
