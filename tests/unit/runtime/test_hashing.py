"""The hash of a container's definition: equal to upstream's, byte for byte."""

import pytest
from msgspec.structs import replace

from klet.api.container import EphemeralContainer
from klet.runtime.hashing import container_hash, fnv32a
from klet.testing.builders import make_container, with_resources


def test_the_known_value_of_upstream():
    assert f"{container_hash(make_container('test_container', image='foo/image:v1')):x}" == "8e45cbd0"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", 0x811C9DC5, id="nothing"),
        pytest.param(b"a", 0xE40C292C, id="one byte"),
        pytest.param(b"foobar", 0xBF9CF968, id="the published vector"),
    ],
)
def test_fnv_1a(data, expected):
    assert fnv32a(data) == expected


def test_only_name_and_image_count():
    plain = make_container("c", image="i")
    other = replace(with_resources(plain, limits={"cpu": "1"}), command=("sh",), restart_policy="Always")
    assert container_hash(plain) == container_hash(other)
    assert container_hash(plain) == container_hash(EphemeralContainer(name="c", image="i"))
    assert container_hash(plain) != container_hash(replace(plain, image="j"))
    assert container_hash(plain) != container_hash(replace(plain, name="d"))


def test_characters_are_escaped_as_go_does():
    """Each differs from its plain spelling only if it was escaped before hashing."""
    texts = ["a<b", "a>b", "a&b", 'a"b', "a\\b", "a\nb", "a\x01b", "a\u2028b", "aéb"]
    hashes = {container_hash(make_container("c", image=text)) for text in texts}
    assert len(hashes) == len(texts)
    escaped = '{"image":"a\\u003cb","name":"c"}'
    dump = "([]uint8)[" + " ".join(str(byte) for byte in escaped.encode()) + "]"
    assert container_hash(make_container("c", image="a<b")) == fnv32a(dump.encode())
