from pathlib import Path

import pytest

from klet.testing.conformance.userland import (
    BUSYBOX,
    LINKED,
    build_busybox,
    change_settings,
    loader_path,
    missing_files,
    parse_libraries,
)
from klet.testing.debian_packages import PackagesMissing

LISTED = """\
	linux-vdso.so.1 (0x00007fe6c7b3e000)
	libtinfo.so.6 => /r/usr/lib/m/libtinfo.so.6 (0x00007fe6c79b8000)
	libc.so.6 => /r/usr/lib/m/libc.so.6 (0x00007fe6c77c4000)
	libodd.so.1 => /usr/lib/libodd.so.1 (0x00007fe6c77c4000)
	/lib64/ld-linux-x86-64.so.2 => /r/usr/lib/m/ld-linux-x86-64.so.2 (0x00007fe6c7b40000)
"""


def test_libraries_are_those_below_the_root():
    names = ("ld-linux-x86-64.so.2", "libc.so.6", "libtinfo.so.6")
    assert parse_libraries(LISTED, Path("/r")) == [Path("/r/usr/lib/m") / name for name in names]


def test_where_programs_look_for_the_loader():
    assert loader_path("ld-linux-x86-64.so.2") == "/lib64/ld-linux-x86-64.so.2"
    assert loader_path("ld-linux-aarch64.so.1") == "/lib/ld-linux-aarch64.so.1"


def test_a_root_that_an_older_klet_filled_lacks_what_is_new(tmp_path):
    assert missing_files(tmp_path) == [BUSYBOX, *LINKED]
    for name in LINKED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert missing_files(tmp_path) == [BUSYBOX]


def test_settings_change_whether_they_were_on_or_off():
    config = "# head\n# CONFIG_STATIC is not set\nCONFIG_TC=y\nCONFIG_STATIC_LIBGCC=y\n"
    changed = change_settings(config, {"CONFIG_STATIC": "y", "CONFIG_TC": "n"})
    assert changed == "# head\nCONFIG_STATIC=y\nCONFIG_TC=n\nCONFIG_STATIC_LIBGCC=y\n"


def test_without_a_compiler_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PackagesMissing, match="no gcc and no make to build busybox: apt-get install gcc"):
        build_busybox(tmp_path / "busybox", suite="trixie")
