import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from klet.offline.errors import SealBroken
from klet.offline.sealing import NONCE_SIZE, TAG_SIZE, load_sealer
from klet.offline.store import KEY_SIZE

KEY = bytes(range(KEY_SIZE))
SEALER = load_sealer(KEY)


@given(data=st.binary(max_size=5000), owner=st.binary(max_size=200))
def test_what_was_sealed_opens_for_its_owner_and_is_plain_aes_gcm(data, owner):
    sealed = SEALER.seal(data, owner=owner)
    assert SEALER.open(sealed, owner=owner) == data
    assert AESGCM(KEY).decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], owner) == data
    assert len(sealed) == NONCE_SIZE + len(data) + TAG_SIZE


def test_what_others_sealed_opens():
    nonce = bytes(NONCE_SIZE)
    assert SEALER.open(nonce + AESGCM(KEY).encrypt(nonce, b"word", b"a/b"), owner=b"a/b") == b"word"


def test_nothing_is_sealed_twice_the_same_way():
    assert len({SEALER.seal(b"word", owner=b"a") for _ in range(100)}) == 100


@given(place=st.integers(min_value=0, max_value=NONCE_SIZE + 4 + TAG_SIZE - 1), bit=st.integers(0, 7))
def test_one_changed_bit_anywhere_is_noticed(place, bit):
    sealed = bytearray(SEALER.seal(b"word", owner=b"a/b"))
    sealed[place] ^= 1 << bit
    with pytest.raises(SealBroken, match="does not open"):
        SEALER.open(bytes(sealed), owner=b"a/b")


@pytest.mark.parametrize(
    ("change", "owner", "message"),
    [
        pytest.param(lambda sealed: sealed, b"a/c", "does not open", id="another owner"),
        pytest.param(lambda sealed: sealed[:-1], b"a/b", "does not open", id="the last byte is lost"),
        pytest.param(lambda sealed: sealed + b"x", b"a/b", "does not open", id="a byte too many"),
        pytest.param(lambda _: b"", b"a/b", "too short", id="nothing"),
        pytest.param(lambda sealed: sealed[: NONCE_SIZE + TAG_SIZE - 1], b"a/b", "too short", id="hardly anything"),
    ],
)
def test_what_does_not_open(change, owner, message):
    with pytest.raises(SealBroken, match=message):
        SEALER.open(change(SEALER.seal(b"word", owner=b"a/b")), owner=owner)


def test_another_key_does_not_open():
    with pytest.raises(SealBroken, match="another key"):
        load_sealer(bytes(KEY_SIZE)).open(SEALER.seal(b"word", owner=b"a"), owner=b"a")


@pytest.mark.parametrize(
    ("sealed", "owner", "data"),
    [
        pytest.param(
            "b6914e9326bd690b9baa2ffdb919509881f6e748702ecc77fe51f03e4b3ea4c1"
            "c1141ab3f8c481a8d4037fa311b19aa6d90697a5efd4db",
            b"Secret/shop/db",
            b"what the previous code kept",
            id="a value",
        ),
        pytest.param(
            "9dbc40ae2ed6b0f1becc9c95fb1a8612eaf5deae71554d7d613d21de", b"Secret/shop/empty", b"", id="an empty one"
        ),
    ],
)
def test_what_klet_sealed_through_ctypes_opens(sealed, owner, data):
    assert SEALER.open(bytes.fromhex(sealed), owner=owner) == data


def test_the_cipher_is_that_of_the_cryptography_library():
    program = "import sys, klet.offline.sealing; print('cryptography' in sys.modules, 'ctypes' in sys.modules)"
    answer = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout.split() == ["True", "False"]
