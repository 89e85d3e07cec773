"""Which logins fit which images."""

import pytest

from klet.images.docker_config import RegistryLogin
from klet.images.keyring import Keyring, is_on_default_registry, key_of, matches

TEAM_APP = "registry.example.com:5000/team/app"
NGINX = "docker.io/library/nginx"


@pytest.mark.parametrize(
    ("glob", "target", "expected"),
    [
        ("*.kubernetes.io", "prefix.kubernetes.io", True),
        ("prefix.*.io", "prefix.kubernetes.io", True),
        ("prefix.kubernetes.*", "prefix.kubernetes.io", True),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io", True),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo", True),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", True),
        ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io:1111/blah", True),
        ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", True),
        ("*kubernetes.io", "kubernetes.io", True),
        ("r[ab].io", "rb.io", True),
        ("r[^ab].io", "rc.io", True),
        ("[::1]:5000", "[::1]:5000/app", True),
        ("*.kubernetes.io", "kubernetes.io", False),
        ("*kubernetes.io", "a.kubernetes.io", False),
        ("*.*.kubernetes.io", "prefix.kubernetes.io", False),
        ("*.kubernetes.io", "kubernetes.com", False),
        ("*.kubernetes.io", "a.b.kubernetes.io", False),
        ("prefix.*.io/foo", "prefix.kubernetes.io:1111/foo/bar", False),
        ("*.kubernetes.io:1111/blah", "prefix.kubernetes.io/blah", False),
        ("*.kubernetes.io/blah", "prefix.kubernetes.io/other", False),
        ("k*.io", "quay.io", False),
        ("r[^ab].io", "ra.io", False),
        ("[::1]:5000", "[::1]:5001/app", False),
        ("[::1]", "[::1]:5001/app", False),
    ],
)
def test_globs(glob, target, expected):
    assert matches(glob, target) is expected


@pytest.mark.parametrize(
    ("location", "key"),
    [
        ("https://index.docker.io/v1/", "index.docker.io"),
        ("https://index.docker.io/v2/", "index.docker.io"),
        ("http://registry:5000", "registry:5000"),
        ("registry.example.com/", "registry.example.com"),
        ("registry.example.com/v1/team", "registry.example.com/team"),
        ("registry.example.com/v1", "registry.example.com/v1"),
        ("registry.example.com/v3/team", "registry.example.com/v3/team"),
        ("registry.example.com/a%20b", "registry.example.com/a b"),
        ("user@registry.example.com", "registry.example.com"),
        ("*.example.com:5000", "*.example.com:5000"),
        ("[::1]:5000/a", "[::1]:5000/a"),
        ("registry:port", None),
        ("[::1", None),
    ],
)
def test_keys(location, key):
    assert key_of(location) == key


@pytest.mark.parametrize(
    ("locations", "repository", "expected"),
    [
        pytest.param(
            ["https://index.docker.io/v1/", "docker.io", "docker.io/library"], NGINX,
            ["docker.io/library", "docker.io"],
            id="the more specific first, the default registry only if there is no other",
        ),
        pytest.param(["https://index.docker.io/v1/", "quay.io"], NGINX, ["https://index.docker.io/v1/"],
                     id="the default registry by its old name"),
        pytest.param(["https://index.docker.io/v1/"], "quay.io/team/app", [], id="the default registry is no other"),
        pytest.param(
            ["*.example.com:5000", "registry.example.com:5000/team", "registry.example.com", "*.com:5000",
             "registry.example.com:5000/te"],
            TEAM_APP, ["registry.example.com:5000/team", "registry.example.com:5000/te", "*.example.com:5000"],
            id="port and parts have to fit, a path is a mere beginning",
        ),
        pytest.param(["http://quay.io/v1/", "quay.io"], "quay.io/a", ["http://quay.io/v1/", "quay.io"],
                     id="two of the same registry in their order"),
        pytest.param(["registry:port", "quay.io"], "quay.io/a", ["quay.io"], id="what is no address is passed over"),
        pytest.param([], NGINX, [], id="none at all"),
    ],
)  # fmt: skip
def test_the_order_of_logins(locations, repository, expected):
    keyring = Keyring([{location: RegistryLogin(location, "p") for location in locations}])
    assert [login.username for login in keyring.find(repository)] == expected


def test_several_documents_are_one_keyring():
    first = {"quay.io": RegistryLogin("first", "p"), "quay.io/a": RegistryLogin("specific", "p")}
    second = {"quay.io": RegistryLogin("second", "p"), "quay.io/a/b": RegistryLogin("most specific", "p")}
    found = Keyring([first, second]).find("quay.io/a/b/c")
    assert [login.username for login in found] == ["most specific", "specific", "first", "second"]


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        ("nginx", True),
        ("docker.io/library/nginx", True),
        ("index.docker.io/library/nginx", True),
        ("team/app", True),
        ("quay.io/app", False),
        ("registry:5000/app", False),
        ("/app", False),
        ("", False),
    ],
)
def test_the_default_registry(repository, expected):
    assert is_on_default_registry(repository) is expected
