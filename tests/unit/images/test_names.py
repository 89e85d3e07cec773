"""Image references and the tag that is meant when none is written."""

import pytest

from klet.images.names import ImageNameError, repository_of, with_default_tag

DIGEST = "@sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("busybox", "busybox:latest"),
        ("busybox:1", "busybox:1"),
        ("library/busybox", "library/busybox:latest"),
        ("klet.local/busybox:1", "klet.local/busybox:1"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ("Registry.Example/a", "Registry.Example/a:latest"),
        ("a__b/c-d.e", "a__b/c-d.e:latest"),
        (f"busybox{DIGEST}", f"busybox{DIGEST}"),
        (f"busybox:1{DIGEST}", f"busybox:1{DIGEST}"),
        ("a:" + "t" * 128, "a:" + "t" * 128),
    ],
)
def test_references(image, expected):
    assert with_default_tag(image) == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("busybox", "docker.io/library/busybox"),
        ("busybox:1", "docker.io/library/busybox"),
        ("localhost:5000", "docker.io/library/localhost"),
        ("example.com", "docker.io/library/example.com"),
        ("team/app:1", "docker.io/team/app"),
        ("docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/team/app", "docker.io/team/app"),
        ("localhost/app", "localhost/app"),
        ("localhost:5000/a/b:2", "localhost:5000/a/b"),
        ("registry.example.com:5000/team/app", "registry.example.com:5000/team/app"),
        ("Registry/app", "Registry/app"),
        (f"quay.io/a/b:1{DIGEST}", "quay.io/a/b"),
        ("[::1]:5000/a", "[::1]:5000/a"),
    ],
)
def test_repositories(image, expected):
    assert repository_of(image) == expected


def test_what_is_no_reference_is_quoted():
    with pytest.raises(ImageNameError) as caught:
        with_default_tag('busy"\nbox')
    assert str(caught.value) == 'couldn\'t parse image name "busy\\"\\nbox": invalid reference format'
