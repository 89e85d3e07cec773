"""Where logins come from, and upstream's hash of them."""

import hashlib

import pytest

from klet.images.docker_config import RegistryLogin
from klet.images.sources import (
    ImagePullSecret,
    NodeWide,
    NoProviderLogins,
    SourcedLogin,
    credential_hash,
    from_node,
    from_secret,
)
from klet.testing.builders import make_pod

LOGIN = RegistryLogin("user", "pass")
HASH = "cb54b00fb550d4a17c448149caa29f38f4d5a44fb87c752e43db8160af3a032a"


def test_the_hash_of_a_login_is_upstreams():
    assert credential_hash(LOGIN) == HASH


@pytest.mark.parametrize(
    ("login", "text"),
    [
        pytest.param(RegistryLogin("", ""), "{}", id="empty fields are left out"),
        pytest.param(RegistryLogin("u", ""), '{"username":"u"}', id="no password"),
        pytest.param(
            RegistryLogin("u", "p", "e@x"), '{"username":"u","password":"p","email":"e@x"}', id="with an email"
        ),
        pytest.param(
            RegistryLogin("<u>", "a&b"),
            '{"username":"\\u003cu\\u003e","password":"a\\u0026b"}',
            id="signs of HTML are escaped as Go does",
        ),
        pytest.param(RegistryLogin("u\u2028", "é\n"), '{"username":"u\\u2028","password":"é\\n"}', id="other signs"),
    ],
)
def test_what_the_hash_is_of(login, text):
    assert credential_hash(login) == hashlib.sha256(text.encode()).hexdigest()


def test_logins_keep_their_places():
    secret = from_secret({"quay.io": LOGIN}, uid="u", namespace="ns", name="n")
    assert secret == {"quay.io": SourcedLogin(LOGIN, ImagePullSecret("u", "ns", "n", HASH))}
    assert from_node({"quay.io": LOGIN}) == {"quay.io": SourcedLogin(LOGIN, NodeWide())}


async def test_a_node_without_providers():
    assert await NoProviderLogins().find(make_pod(), "nginx:1", "docker.io/library/nginx") == ()
