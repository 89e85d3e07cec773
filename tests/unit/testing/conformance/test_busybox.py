import pytest

from klet.testing.conformance.busybox import build_busybox, change_settings
from klet.testing.debian_packages import PackagesMissing


def test_settings_change_whether_they_were_on_or_off():
    config = "# head\n# CONFIG_STATIC is not set\nCONFIG_TC=y\nCONFIG_STATIC_LIBGCC=y\n"
    changed = change_settings(config, {"CONFIG_STATIC": "y", "CONFIG_TC": "n"})
    assert changed == "# head\nCONFIG_STATIC=y\nCONFIG_TC=n\nCONFIG_STATIC_LIBGCC=y\n"


def test_without_a_compiler_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PackagesMissing, match="no gcc and no make to build busybox: apt-get install gcc"):
        build_busybox(tmp_path / "busybox", suite="trixie")
