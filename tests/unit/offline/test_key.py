import stat

import pytest

from klet.offline.errors import KeyUnusable
from klet.offline.key import KEY_SIZE, ensure_key


def test_the_key_is_made_once_and_for_root_only(tmp_path):
    path = tmp_path / "klet-offline" / "key"
    key = ensure_key(path)
    assert len(key) == KEY_SIZE
    assert ensure_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_key_that_others_can_read_is_closed_again(tmp_path, caplog):
    path = tmp_path / "key"
    key = ensure_key(path)
    path.chmod(0o644)
    assert ensure_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert caplog.messages == ["The key of the node was open to others"]


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33], ids=["nothing", "a byte lost", "a byte too many"])
def test_a_damaged_key_is_set_aside_and_made_again(tmp_path, caplog, content):
    path = tmp_path / "key"
    path.write_bytes(content)
    assert len(ensure_key(path)) == KEY_SIZE
    assert (tmp_path / "key.corrupt").read_bytes() == content
    assert caplog.messages == ["The key of the node is damaged and was set aside"]


def test_a_key_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KeyUnusable, match="cannot be"):
        ensure_key(tmp_path / "file" / "key")


def test_a_key_that_cannot_be_read(tmp_path):
    (tmp_path / "key").mkdir()
    with pytest.raises(KeyUnusable, match="remove the file to have a new one"):
        ensure_key(tmp_path / "key")
