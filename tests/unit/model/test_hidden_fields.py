"""Secrets stay out of what is shown."""

import pytest

from klet.certs.requests import Posted
from klet.images.docker_config import RegistryLogin
from klet.images.sources import ImagePullSecret
from klet.kube.access import ExecPlugin, Login, PemSource
from klet.kube.credentials import CredentialSet
from klet.kube.transport import HttpAnswer, HttpRequest
from klet.model.objects import IssuedToken
from klet.volumes.atomic_writer import FileProjection

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(RegistryLogin("me", SECRET), "RegistryLogin(username='me', email='')", id="a login"),
        pytest.param(
            ImagePullSecret("u", "ns", "n", SECRET),
            "ImagePullSecret(uid='u', namespace='ns', name='n')",
            id="the hash of a login",
        ),
        pytest.param(
            IssuedToken(SECRET, None),
            "IssuedToken(refresh_at=None, expires_at=None)",
            id="a token of a service account",
        ),
        pytest.param(FileProjection(SECRET.encode(), 0o644), "FileProjection(mode=420, uid=None)", id="a file"),
        pytest.param(PemSource(data=SECRET.encode()), "PemSource(path=None)", id="PEM text"),
        pytest.param(CredentialSet(SECRET, b"", SECRET.encode()), "CredentialSet()", id="a set of credentials"),
        pytest.param(Posted(name="a", uid="b", key=SECRET), "Posted(name='a', uid='b')", id="the key of a request"),
        pytest.param(HttpAnswer(200, "", SECRET.encode()), "HttpAnswer(code=200, retry_after='')", id="an answer"),
        pytest.param(
            Login(token=SECRET), "Login(pair=None, token_file=None, plugin=None)", id="the token of a kubeconfig"
        ),
        pytest.param(
            HttpRequest("POST", "/", body=SECRET.encode()),
            "HttpRequest(method='POST', path='/', query=(), content_type='application/json')",
            id="the body of a request",
        ),
        pytest.param(
            ExecPlugin("v1", "program", env={"KEY": SECRET}),
            "ExecPlugin(api_version='v1', command='program', args=(), install_hint='', cluster=None)",
            id="the environment of a plugin",
        ),
    ],
)
def test_a_secret_is_not_shown(value, shown):
    assert repr(value) == shown
