"""Secrets that pods pull their images with."""

import json

import pytest
from msgspec.structs import replace

from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.api.references import LocalObjectReference
from klet.images.docker_config import RegistryLogin
from klet.images.node_logins import NoNodeLogins
from klet.images.pull_secrets import BadPullSecret, PullSecrets, read_logins
from klet.images.sources import ImagePullSecret, NodeWide, NoProviderLogins, SourcedLogin, credential_hash
from klet.model.objects import ObjectMissing
from klet.testing.builders import make_pod

JSON = "kubernetes.io/dockerconfigjson"
CFG = "kubernetes.io/dockercfg"
REPOSITORY = "registry.example.com/team/app"


def document(**logins) -> dict:
    """Logins of `registry.example.com` by paths, which are also the user names."""
    return {f"registry.example.com/{name}": {"username": name, "password": pw} for name, pw in logins.items()}


def secret_of(kind, key, content, name="regcred"):
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Secret(metadata=ObjectMeta(name=name, namespace="default"), type=kind, data={key: data})


def new(name="regcred", **logins):
    return secret_of(JSON, ".dockerconfigjson", {"auths": document(**logins)}, name)


def old(name="regcred", **logins):
    return secret_of(CFG, ".dockercfg", document(**logins), name)


class Secrets:
    """Secrets by name."""

    def __init__(self, *secrets):
        self.secrets = {secret.metadata.name: secret for secret in secrets}
        self.asked = []

    async def secret(self, namespace, name):
        self.asked.append(f"{namespace}/{name}")
        if name not in self.secrets:
            raise ObjectMissing(f'secret "{name}" not found')
        return self.secrets[name]


class NodeConfig:
    async def read(self):
        return {"registry.example.com": RegistryLogin("the node", "p")}


def pod_with(*names):
    pod = make_pod()
    references = tuple(LocalObjectReference(name=name) for name in names)
    return replace(pod, spec=replace(pod.spec, image_pull_secrets=references))


class Providers:
    """Credential providers that know one login."""

    async def find(self, _pod, image, repository):
        return (SourcedLogin(RegistryLogin(f"provider of {image} in {repository}", "p"), NodeWide()),)


def logins_of(*secrets, node=None, providers=None):
    return PullSecrets(
        secrets=Secrets(*secrets), node=node or NoNodeLogins(), providers=providers or NoProviderLogins()
    )


async def users(pod, *secrets, node=None, providers=None, repository=REPOSITORY):
    found = await logins_of(*secrets, node=node, providers=providers).find(pod, f"{repository}:1", repository)
    return [sourced.login.username for sourced in found.logins]


async def test_both_kinds_of_secrets_are_one_keyring():
    pod = pod_with("a", "b")
    assert await users(pod, new("a", te="1", other="2"), old("b", team="3")) == ["team", "te"]


async def test_equal_places_keep_the_order_of_the_pod():
    first = secret_of(JSON, ".dockerconfigjson", {"auths": {"registry.example.com": {"username": "1"}}}, "a")
    second = secret_of(CFG, ".dockercfg", {"registry.example.com": {"username": "2"}}, "b")
    assert await users(pod_with("b", "a"), first, second) == ["2", "1"]


async def test_the_logins_of_the_node_come_second_and_those_of_providers_last():
    assert await users(pod_with("a"), new("a", te="1"), node=NodeConfig()) == ["te", "the node"]
    assert await users(pod_with(), node=NodeConfig()) == ["the node"]
    provided = f"provider of {REPOSITORY}:1 in {REPOSITORY}"
    assert await users(pod_with("a"), new("a", te="1"), node=NodeConfig(), providers=Providers()) == [
        "te", "the node", provided,
    ]  # fmt: skip


async def test_each_login_carries_where_it_comes_from():
    secret = new("a", te="1")
    secret = replace(secret, metadata=replace(secret.metadata, uid="uid-a"))
    found = await logins_of(secret, node=NodeConfig()).find(pod_with("a"), f"{REPOSITORY}:1", REPOSITORY)
    assert [sourced.source for sourced in found.logins] == [
        ImagePullSecret("uid-a", "default", "a", credential_hash(RegistryLogin("te", "1"))),
        NodeWide(),
    ]


async def test_no_secret_fits():
    assert await users(pod_with("a"), new("a", team="1"), repository="quay.io/team/app") == []


async def test_secrets_that_cannot_be_had_are_left_out_and_named_in_order(caplog):
    caplog.set_level("INFO")
    secrets = Secrets(new("there", team="hidden"))
    logins = PullSecrets(secrets=secrets, node=NoNodeLogins(), providers=NoProviderLogins())
    pod = pod_with("z", "", "there", "a")
    assert await logins.find_missing(pod) == ["z", "a"]
    found = await logins.find(pod, f"{REPOSITORY}:1", REPOSITORY)
    assert [sourced.login.username for sourced in found.logins] == ["team"]
    assert found.missing == ("z", "a")
    assert secrets.asked == ["default/z", "default/there", "default/a"] * 2
    assert [(record.secret, record.error) for record in caplog.records][:2] == [
        ("z", 'secret "z" not found'), ("a", 'secret "a" not found'),
    ]  # fmt: skip
    assert "hidden" not in caplog.text


async def test_a_pod_without_secrets_lacks_none():
    assert await logins_of().find_missing(pod_with()) == ()


@pytest.mark.parametrize(
    "secret",
    [
        pytest.param(secret_of("Opaque", ".dockerconfigjson", {"auths": document(team="1")}), id="another type"),
        pytest.param(secret_of("", ".dockercfg", document(team="1")), id="no type"),
        pytest.param(secret_of(JSON, ".dockercfg", document(team="1")), id="the key of the other type"),
        pytest.param(secret_of(CFG, ".dockerconfigjson", {"auths": document(team="1")}), id="the other way round"),
        pytest.param(secret_of(JSON, ".dockerconfigjson", b""), id="nothing in it"),
        pytest.param(Secret(type=JSON), id="no data at all"),
    ],
)
def test_secrets_without_logins(secret):
    assert read_logins(secret) == {}


async def test_a_secret_that_cannot_be_read_fails_the_pull_and_is_not_shown():
    bad = secret_of(JSON, ".dockerconfigjson", b'{"auths": "hidden"}', "bad")
    with pytest.raises(BadPullSecret) as caught:
        await users(pod_with("a", "bad"), new("a", team="1"), bad)
    assert str(caught.value) == (
        'image pull secret "default/bad", key .dockerconfigjson: Expected `object | null`, got `str`'
    )
