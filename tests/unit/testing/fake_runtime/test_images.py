import pytest

from klet.testing.fake_runtime.calls import RpcFailure
from klet.testing.fake_runtime.images import (
    FakeImage,
    ImageStore,
    any_image,
    is_valid_reference,
    normalize,
    nowhere,
    registry_of,
)

DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("someone/busybox", "docker.io/someone/busybox:latest"),
        ("klet.local/busybox:1", "klet.local/busybox:1"),
        ("localhost/busybox", "localhost/busybox:latest"),
        ("host:5000/busybox", "host:5000/busybox:latest"),
        (f"busybox@{DIGEST}", f"docker.io/library/busybox@{DIGEST}"),
    ],
)
def test_names_are_completed(name, full):
    assert normalize(name) == full


@pytest.mark.parametrize("name", ["bad image", "Upper/case", "", "x?"])
def test_bad_references(name):
    assert not is_valid_reference(name)


@pytest.mark.parametrize("name", ["busybox", "host:5000/a/b:V1.0", f"busybox@{DIGEST}"])
def test_good_references(name):
    assert is_valid_reference(name)


def test_an_image_is_found_under_all_its_names():
    store = ImageStore()
    image = FakeImage("busybox:1")
    stored = store.add(image, pulled_as="busybox:1")
    for reference in (
        "busybox:1",
        "docker.io/library/busybox:1",
        image.image_id,
        image.image_id[7:20],
        f"busybox@{image.manifest_digest}",
    ):
        assert store.find(reference) is stored, reference
    assert store.find("busybox:2") is None


def test_an_imported_image_has_no_digest_and_a_pulled_one_has():
    store = ImageStore()
    assert store.add(FakeImage("a:1")).message().repo_digests == []
    pulled = store.add(FakeImage("a:1", digest=DIGEST), pulled_as="a:1").message()
    assert list(pulled.repo_digests) == [f"docker.io/library/a@{DIGEST}"]
    assert list(pulled.repo_tags) == ["docker.io/library/a:1"]


def test_a_tag_moves_to_the_newer_image():
    store = ImageStore()
    old = store.add(FakeImage("a:1", id=f"sha256:{'1' * 64}"))
    new = store.add(FakeImage("a:1", id=f"sha256:{'2' * 64}"))
    assert (old.tags, new.tags) == ([], ["docker.io/library/a:1"])


def test_removing_takes_all_names_and_the_space():
    store = ImageStore()
    stored = store.add(FakeImage("a:1", size=100))
    assert store.used_bytes() == 100
    store.remove(stored)
    assert (store.find("a:1"), store.used_bytes(), store.all()) == (None, 0, [])


def test_an_empty_reference_is_refused():
    with pytest.raises(RpcFailure, match="ambiguous digest string"):
        ImageStore().find("")


@pytest.mark.parametrize(("user", "uid", "username"), [("", 0, ""), ("1000", 1000, ""), ("nobody", 0, "nobody")])
def test_the_user_is_a_number_or_a_name(user, uid, username):
    message = ImageStore().add(FakeImage("a:1", user=user)).message()
    assert (message.uid.value, message.username) == (uid, username)


def test_registries():
    image = FakeImage("a:1")
    assert registry_of(image)("docker.io/library/a:1") is image
    assert registry_of(image)("docker.io/library/b:1") is None
    assert any_image(size=7)("whatever:1") == FakeImage("whatever:1", size=7)
    assert nowhere("a:1") is None
