"""The OpenSSL that Python itself uses, for the functions of it that Python does not offer."""

import _ssl
import ctypes
from collections.abc import Mapping
from typing import Any, TypeAlias

from klet.host.errors import HostError

Signatures: TypeAlias = Mapping[str, tuple[Any, tuple[Any, ...]]]
"""By function: the type of the result and those of the arguments."""


class LibraryHidden(HostError):
    """Python has the library built in and hides its functions."""


def load_openssl(signatures: Signatures) -> ctypes.CDLL:
    """The library with these functions ready to be called."""
    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        for name, (result, arguments) in signatures.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LibraryHidden(f"the functions of OpenSSL cannot be reached: {error}") from error
    return library
