import ctypes

import pytest

from klet.host.openssl_library import LibraryHidden, load_openssl


def test_functions_of_the_library_behind_python_can_be_called():
    library = load_openssl({"OpenSSL_version_num": (ctypes.c_ulong, ())})
    assert library.OpenSSL_version_num() > 0


def test_a_function_that_is_not_there_is_told():
    with pytest.raises(LibraryHidden, match="no_such_function"):
        load_openssl({"no_such_function": (None, ())})
