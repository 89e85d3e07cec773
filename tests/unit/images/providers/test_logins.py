"""All providers together: in which order their logins are tried, and for whom they are asked."""

import json
import logging
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.api.config import ServiceAccount
from klet.api.meta import ObjectMeta
from klet.config.credential_provider import CredentialProvider, ServiceAccountTokenAttributes
from klet.host.processes import Completed
from klet.images.providers.logins import ProviderKeyring
from klet.images.providers.metrics import register_providers
from klet.images.providers.plugin import ProviderPlugin, ProviderPorts
from klet.images.sources import ImagePullServiceAccount, NodeWide
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.objects import IssuedToken, ObjectMissing
from klet.objectcache.errors import TokenFailed
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

V1 = "credentialprovider.kubelet.k8s.io/v1"
REPOSITORY = "r.example.com/team/app"
ATTRIBUTES = ServiceAccountTokenAttributes(
    service_account_token_audience="registry", cache_type="ServiceAccount", require_service_account=True
)
PULLER = ServiceAccount(metadata=ObjectMeta(name="puller", namespace="default", uid="sa-1"))


def provider(name, *, images=("*.example.com",), tokens=None):
    return CredentialProvider(
        name=name,
        match_images=images,
        default_cache_duration=timedelta(),
        api_version=V1,
        token_attributes=tokens,
    )


class World:
    """Programs that answer with logins by place, accounts and tokens."""

    def __init__(self, *providers, **answers):
        self.clock = ManualClock()
        self.answers = answers
        self.asked = {}
        self.accounts = {"puller": PULLER}
        self.token_requests = []
        self.refuses_tokens = False
        self.journal = MemoryJournal(clock=self.clock)
        metrics = register_providers(MetricRegistry(), names=[], config_hash="")
        ports = ProviderPorts(runner=self, metrics=metrics, clock=self.clock)
        self.providers = ProviderKeyring(
            plugins=[ProviderPlugin(provider=each, directory=Path("/p"), ports=ports) for each in providers],
            accounts=self.Accounts(self),
            tokens=self.Tokens(self),
            recorder=self.journal,
        )

    class Accounts:
        def __init__(self, world):
            self.world = world

        async def get(self, namespace, name):
            if name not in self.world.accounts:
                raise ObjectMissing(f'serviceaccounts "{name}" not found')
            assert namespace == "default"
            return self.world.accounts[name]

    class Tokens:
        def __init__(self, world):
            self.world = world

        async def get(self, namespace, account, request):
            if self.world.refuses_tokens:
                raise TokenFailed("no audience")
            self.world.token_requests.append((namespace, account, request.metadata.uid, request.spec.audiences))
            return IssuedToken("t0ken", None)

    async def run(self, argv, *, stdin, env, timeout, output_limit):
        del env, timeout, output_limit
        name = Path(argv[0]).name
        self.asked.setdefault(name, []).append(json.loads(stdin))
        if (places := self.answers.get(name)) is None:
            return Completed(argv=tuple(argv), returncode=1, stdout=b"", stderr=b"no t0ken accepted")
        fields = {"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": "Image"}
        auth = {place: {"username": f"{name} {place}", "password": "pass"} for place in places}
        return Completed(
            argv=tuple(argv), returncode=0, stdout=json.dumps({**fields, "auth": auth}).encode(), stderr=b""
        )

    async def users(self, *, account="", repository=REPOSITORY):
        return [each.login.username for each in await self.find(account=account, repository=repository)]

    async def find(self, *, account="", repository=REPOSITORY):
        pod = make_pod()
        pod = replace(pod, spec=replace(pod.spec, service_account_name=account))
        return await self.providers.find(pod, f"{repository}:1", repository)


async def test_the_more_specific_place_comes_first_then_the_order_of_the_configuration():
    world = World(provider("a"), provider("b"), a=["*.example.com"], b=["*.example.com", "r.example.com/team", "x.org"])
    assert await world.users() == ["b r.example.com/team", "a *.example.com", "b *.example.com"]


async def test_only_those_that_are_for_the_image_are_asked():
    world = World(provider("a"), provider("b", images=("other.example.org",)), a=["r.example.com"], b=["r.example.com"])
    assert await world.users() == ["a r.example.com"]
    assert [request["image"] for request in world.asked["a"]] == [REPOSITORY]
    assert "b" not in world.asked


async def test_a_login_for_another_registry_is_not_used():
    world = World(provider("a"), a=["other.example.com", "r.example.com:5000"])
    assert await world.users() == []


async def test_one_that_fails_is_reported_and_the_others_count(caplog):
    caplog.set_level(logging.DEBUG)
    world = World(provider("a", tokens=ATTRIBUTES), provider("b"), b=["r.example.com"])
    assert await world.users(account="puller") == ["b r.example.com"]
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.getMessage() == "Credential provider gave no logins"
    assert (record.plugin, record.stderr) == ("a", "no <token> accepted")
    [cause] = world.journal.all()
    assert cause.finding.decision == "CredentialProviderFailed"
    assert cause.finding.message == (
        "credential provider a gave no logins: error execing credential provider plugin a for image "
        "r.example.com/team/app: exit status 1"
    )
    assert "t0ken" not in caplog.text + repr([record.__dict__ for record in caplog.records]) + str(world.journal.all())


async def test_the_source_of_a_login_is_the_node_or_the_account():
    world = World(provider("a"), provider("b", tokens=ATTRIBUTES), a=["r.example.com"], b=["r.example.com/team"])
    account, node = await world.find(account="puller")
    assert account.source == ImagePullServiceAccount(uid="sa-1", namespace="default", name="puller")
    assert node.source == NodeWide()
    assert world.asked["b"][0]["serviceAccountToken"] == "t0ken"
    assert "serviceAccountToken" not in world.asked["a"][0]
    assert world.token_requests == [("default", "puller", "sa-1", ("registry",))]


@pytest.mark.parametrize(
    ("attributes", "account", "is_asked"),
    [
        pytest.param({}, "", False, id="a pod without the account that is required"),
        pytest.param({"require_service_account": False}, "", True, id="a pod without one that is optional"),
        pytest.param(
            {"required_service_account_annotation_keys": ("a",)}, "puller", False, id="an account without an annotation"
        ),
        pytest.param({}, "puller", True, id="a pod with its account"),
    ],
)
async def test_who_is_skipped_without_a_word(caplog, attributes, account, is_asked):
    world = World(provider("a", tokens=replace(ATTRIBUTES, **attributes)), a=["r.example.com"])
    found = await world.find(account=account)
    assert bool(found) is is_asked
    assert ("a" in world.asked) is is_asked
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]
    assert world.journal.all() == ()
    if is_asked:
        assert isinstance(found[0].source, ImagePullServiceAccount if account else NodeWide)


async def test_an_account_without_object_or_token_gives_no_logins():
    world = World(provider("a", tokens=ATTRIBUTES), a=["r.example.com"])
    assert await world.users(account="gone") == []
    world.refuses_tokens = True
    assert await world.users(account="puller") == []
    assert [cause.finding.message for cause in world.journal.all()] == [
        'credential provider a gave no logins: failed to get service account: serviceaccounts "gone" not found',
        "credential provider a gave no logins: failed to get service account token: no audience",
    ]
    assert world.asked == {}
