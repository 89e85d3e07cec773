import pytest

from klet.api.config import ConfigMap, Secret
from klet.checkpoint import CheckpointDamaged
from klet.offline.object_formats import Known, PlainFormat, SealedFormat
from klet.offline.sealing import load_sealer
from klet.offline.store import KEY_SIZE

SEALER = load_sealer(bytes(KEY_SIZE))
SECRET = Secret(data={"password": b"hunter2"})


def sealed(owner):
    return SealedFormat(kind="KeptSecret", owner=owner, struct=Secret, sealer=SEALER)


def plain(owner):
    return PlainFormat(kind="KeptConfigMap", owner=owner, struct=ConfigMap)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        pytest.param(plain("a/b"), ConfigMap(data={"x": "y"}), id="a config map"),
        pytest.param(plain("a/b"), None, id="no config map"),
        pytest.param(sealed("a/b"), SECRET, id="a secret"),
        pytest.param(sealed("a/b"), None, id="no secret"),
    ],
)
def test_what_was_written_is_read(form, value):
    assert form.decode(form.encode(Known(value))) == Known(value)


def test_a_plain_file_belongs_to_its_owner():
    with pytest.raises(CheckpointDamaged, match="owner is 'a/b', expected 'a/c'"):
        plain("a/c").decode(plain("a/b").encode(Known(ConfigMap())))


def test_a_seal_holds_for_one_owner_and_one_kind():
    data = sealed("ns/key").encode(Known(SECRET))
    forged = data.replace(b"ns/key", b"ns/kez")
    with pytest.raises(CheckpointDamaged):
        sealed("ns/kez").decode(forged)
    with pytest.raises(CheckpointDamaged, match="kind"):
        SealedFormat(kind="KeptToken", owner="ns/key", struct=Secret, sealer=SEALER).decode(data)


def test_an_owner_is_not_quoted_whole():
    with pytest.raises(CheckpointDamaged) as caught:
        plain("a/b").decode(plain("x" * 100_000).encode(Known(None)))
    assert len(str(caught.value)) < 2048
