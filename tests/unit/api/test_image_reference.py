import pytest

from klet.api.image_reference import image_tag

DIGEST = "sha256:" + "a" * 64


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
