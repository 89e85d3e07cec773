"""Why a patch cannot be applied.

PatchError            the patch does not fit the object or the rules
├── MissingMergeKey   an element of a merge list cannot be distinguished from the others
└── TooManyOperations a JSON patch that is refused for its size
"""

from klet.errors import KletError


class PatchError(KletError):
    """A patch that cannot be applied."""


class MissingMergeKey(PatchError):  # a name of the thing, as the family is called
    """An element of a merge list without the key that names it."""


class TooManyOperations(PatchError):  # a name of the thing, as the family is called
    """A JSON patch of more operations than a server accepts."""
