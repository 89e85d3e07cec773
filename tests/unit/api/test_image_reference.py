"""References to images: their parts, and upstream's words for what is none."""

import pytest

from klet.api.image_reference import BadImageReference, image_tag, parse_image_reference

DIGEST = "sha256:" + "a" * 64
UPPER = "invalid reference format: repository name ({}) must be lowercase"
TOO_LONG = "repository name must not be more than 255 characters"


@pytest.mark.parametrize(
    ("image", "repository", "tag", "digest"),
    [
        pytest.param("a" * 247, f"docker.io/library/{'a' * 247}", "latest", "", id="the longest short name"),
        pytest.param(f"registry.test/{'a' * 255}:1", f"registry.test/{'a' * 255}", "1", "", id="the longest path"),
        pytest.param("f" * 64 + ":1", f"docker.io/library/{'f' * 64}", "1", "", id="a name like an id, with a tag"),
        pytest.param(f"a:1@{DIGEST}", "docker.io/library/a", "1", DIGEST, id="a tag and a digest"),
        pytest.param("a@sha512:" + "0" * 128, "docker.io/library/a", "", "sha512:" + "0" * 128, id="a longer digest"),
        pytest.param("under_score.test/a", "under_score.test/a", "latest", "", id="a host that is none"),
    ],
)
def test_references(image, repository, tag, digest):
    found = parse_image_reference(image)
    assert (found.repository, found.tag, found.digest) == (repository, tag, digest)


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("", "invalid reference format"),
        ("busybox:", "invalid reference format"),
        ("busybox\n", "invalid reference format"),
        ("busy box", "invalid reference format"),
        ("-busybox", "invalid reference format"),
        ("a//b", "invalid reference format"),
        ("a:" + "t" * 129, "invalid reference format"),
        ("a@sha256:123", "invalid reference format"),
        ("http://url", "invalid reference format"),
        ("FAILED_IMAGE", UPPER.format("library/FAILED_IMAGE")),
        ("team/App:1", UPPER.format("team/App")),
        ("registry.test:5000/App", UPPER.format("App")),
        ("registry.test/App@sha256:1", UPPER.format("App@sha256")),
        ("f" * 64, f"invalid repository name ({'f' * 64}), cannot specify 64-byte hexadecimal strings"),
        ("a" * 248, TOO_LONG),
        (f"registry.test/{'a' * 256}", TOO_LONG),
        ("a@sha256:" + "a" * 63, "invalid checksum digest length"),
        ("a@sha256:" + "A" * 64, "invalid checksum digest format"),
        ("a:1@SHA256:" + "a" * 64, "invalid checksum digest format"),
        ("a@md5:" + "a" * 32, "unsupported digest algorithm"),
    ],
)
def test_what_is_no_reference(image, why):
    with pytest.raises(BadImageReference) as caught:
        parse_image_reference(image)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        pytest.param("nginx", "latest", id="a bare name"),
        pytest.param("nginx:latest", "latest", id="the tag itself"),
        pytest.param("reg:5000/nginx", "latest", id="a port is no tag"),
        pytest.param("localhost/nginx", "latest", id="a local registry"),
        pytest.param("a/b/c", "latest", id="a path"),
        pytest.param("nginx:1.25", "1.25", id="a tag"),
        pytest.param("reg:5000/a/nginx:v1_0-x", "v1_0-x", id="a port and a tag"),
        pytest.param("[::1]:5000/nginx:1", "1", id="a registry at an IPv6 address"),
        pytest.param(f"nginx@{DIGEST}", "", id="a digest alone"),
        pytest.param(f"nginx:latest@{DIGEST}", "latest", id="a tag and a digest"),
        pytest.param("REG/nginx", "latest", id="capitals make a registry"),
        pytest.param("Nginx", "", id="capitals in a name"),
        pytest.param("a/Nginx", "", id="capitals in a path"),
        pytest.param("", "", id="nothing"),
        pytest.param("nginx:", "", id="an empty tag"),
        pytest.param("nginx:-x", "", id="a bad tag"),
        pytest.param("nginx@sha256:abc", "", id="a short digest"),
        pytest.param("nginx@x:" + "a" * 32, "", id="a digest of another kind"),
        pytest.param("nginx@sha256", "", id="a digest without a value"),
        pytest.param("a" * 64, "", id="an image id is no name"),
        pytest.param("a" * 256, "", id="a long name"),
        pytest.param(" nginx", "", id="blanks"),
        pytest.param("a..b", "", id="two dots"),
        pytest.param("a__b--c.d", "latest", id="separators"),
    ],
)
def test_image_tag(image, tag):
    assert image_tag(image) == tag
