"""What mount(8) calls exports."""

import pytest

from klet.volumes.plugins.nfs import nfs_source


@pytest.mark.parametrize(
    ("server", "path", "expected"),
    [
        ("server", "/export", "server:/export"),
        ("10.0.0.1", "/", "10.0.0.1:/"),
        ("fe80::1", "/export", "[fe80::1]:/export"),
        ("::ffff:10.0.0.1", "/export", "[::ffff:10.0.0.1]:/export"),
        ("[fe80::1]", "/export", "[fe80::1]:/export"),
        ("a:b", "/export", "a:b:/export"),
    ],
)
def test_sources(server, path, expected):
    assert nfs_source(server, path) == expected
