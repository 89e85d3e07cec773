"""Tokens: kept, renewed, forgotten."""

import asyncio
import random
from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec, TokenRequestStatus
from klet.api.codec import encode
from klet.api.config import ServiceAccount
from klet.api.meta import Status
from klet.api.times import Time
from klet.kube.authorizer_lag import AUTHORIZER_LAG
from klet.kube.errors import Forbidden, NotFound, Unreachable
from klet.objectcache.errors import TokenFailed
from klet.objectcache.standalone import StandaloneTokens
from klet.objectcache.tokens import AT_ONCE, LONGEST_TURN, TokenCache
from klet.testing.clock import SteppingClock

HOUR = timedelta(hours=1)


def request_for(uid="u", seconds=3600):
    bound = BoundObjectReference(kind="Pod", api_version="v1", name="p", uid=uid)
    return TokenRequest(spec=TokenRequestSpec(audiences=(), expiration_seconds=seconds, bound_object_ref=bound))


class TokenServer:
    """Makes tokens that are numbered."""

    def __init__(self, clock):
        self._clock = clock
        self.asked = []
        self.error = None
        self.refusals = 0
        self.resources = ["serviceaccounts/token"]

    async def create_sub(self, struct, name, namespace, subresource, body):
        self.asked.append((struct, name, namespace, subresource, body))
        if self.error is not None:
            raise self.error
        if self.refusals:
            self.refusals -= 1
            raise Forbidden(Status(code=403, message="not yours"))
        until = Time.of(self._clock.now() + timedelta(seconds=body.spec.expiration_seconds))
        status = TokenRequestStatus(token=f"token-{len(self.asked)}", expiration_timestamp=until)
        return replace(body, status=status)

    async def read(self, path):
        assert path == "/api/v1"
        return encode({"resources": [{"name": name} for name in self.resources]})


@pytest.fixture
def server(clock):
    return TokenServer(clock)


@pytest.fixture
def tokens(server, clock):
    return TokenCache(client=server, randomness=random.Random(1), clock=clock)


async def test_a_token_is_asked_for_on_behalf_of_a_pod(tokens, server):
    found = await tokens.get("ns", "sa", request_for())
    assert found.token == "token-1"
    struct, name, namespace, subresource, body = server.asked[0]
    assert (struct, name, namespace, subresource) == (ServiceAccount, "sa", "ns", "token")
    assert (body.api_version, body.kind) == ("authentication.k8s.io/v1", "TokenRequest")
    assert body.spec == request_for().spec


async def test_a_token_is_kept_until_it_is_due(tokens, server, clock):
    found = await tokens.get("ns", "sa", request_for())
    assert timedelta(minutes=47) < found.refresh_at - clock.now() <= timedelta(minutes=48)
    clock.advance(timedelta(minutes=47))
    assert await tokens.get("ns", "sa", request_for()) == found
    clock.advance_to(found.refresh_at)
    assert (await tokens.get("ns", "sa", request_for())).token == "token-2"


async def test_the_first_token_cannot_be_had(tokens, server):
    server.error = Unreachable("away")
    with pytest.raises(TokenFailed, match=r"^failed to fetch token: away$"):
        await tokens.get("ns", "sa", request_for())


async def test_an_api_server_that_does_not_know_yet_that_a_pod_is_here_is_asked_again(tokens, server, clock):
    server.refusals = 1
    async with asyncio.TaskGroup() as group:
        found = group.create_task(tokens.get("ns", "sa", request_for()))
        await clock.run(timedelta(seconds=2))
    assert found.result().token == "token-2"


async def test_an_api_server_that_does_not_want_to_is_not_asked_for_ever(tokens, server, clock):
    server.refusals = 99

    async def ask():
        with pytest.raises(TokenFailed, match=r"^failed to fetch token: not yours$"):
            await tokens.get("ns", "sa", request_for())

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        await clock.run(timedelta(seconds=2))
    assert len(server.asked) == len(AUTHORIZER_LAG) + 1


async def test_an_old_token_is_good_while_a_new_one_cannot_be_had(tokens, server, clock):
    found = await tokens.get("ns", "sa", request_for())
    server.error = Unreachable("away")
    clock.advance(timedelta(minutes=55))
    assert await tokens.get("ns", "sa", request_for()) == found


async def test_an_expired_token_is_good_for_nothing(tokens, server, clock):
    await tokens.get("ns", "sa", request_for())
    server.error = Unreachable("away")
    clock.advance(timedelta(minutes=61))
    with pytest.raises(TokenFailed, match=r'^token "sa"/"ns"/\[\]string.*/"" expired and refresh failed: away$'):
        await tokens.get("ns", "sa", request_for())


async def test_an_account_that_does_not_exist(tokens, server):
    server.error = NotFound(Status(message='serviceaccounts "sa" not found'))
    with pytest.raises(TokenFailed, match=r'^failed to fetch token: serviceaccounts "sa" not found$'):
        await tokens.get("ns", "sa", request_for())


async def test_an_api_server_that_makes_no_tokens(tokens, server):
    server.error = NotFound(Status(message="the server could not find the requested resource"))
    server.resources = ["pods"]
    with pytest.raises(
        TokenFailed, match=r"^failed to fetch token: the API server does not have TokenRequest endpoints enabled$"
    ):
        await tokens.get("ns", "sa", request_for())


async def test_a_pod_that_is_gone_takes_its_tokens_along(tokens):
    await tokens.get("ns", "sa", request_for("u"))
    await tokens.get("ns", "sa", request_for("v"))
    tokens.forget_pod("u")
    assert len(tokens) == 1


async def test_expired_tokens_are_forgotten(tokens, clock):
    await tokens.get("ns", "sa", request_for())
    await tokens.get("ns", "sa", request_for(seconds=7200))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(tokens.run())
        await clock.run(timedelta(minutes=62))
        task.cancel()
    assert len(tokens) == 1


async def test_a_token_is_not_shown_in_messages(tokens):
    assert "token-1" not in repr(await tokens.get("ns", "sa", request_for()))


async def test_a_node_without_an_api_server_has_no_tokens():
    tokens = StandaloneTokens()
    message = r"^failed to fetch token: cannot use TokenManager when kubelet is in standalone mode$"
    with pytest.raises(TokenFailed, match=message):
        await tokens.get("ns", "sa", request_for())
    tokens.forget_pod("u")


async def test_a_node_whose_time_is_behind_renews_its_tokens_all_the_same():
    """The server counts by its own time: by the node's, the token would be good for two hours more."""
    clock = SteppingClock()
    server = TokenServer(clock)
    tokens = TokenCache(client=server, randomness=random.Random(1), clock=clock)
    first = await tokens.get("ns", "default", request_for())
    clock.step = timedelta(hours=-2)
    clock.advance(timedelta(minutes=40))
    assert (await tokens.get("ns", "default", request_for())).token == first.token
    clock.advance(timedelta(minutes=9))
    assert (await tokens.get("ns", "default", request_for())).token != first.token


@pytest.mark.parametrize("change", [{"audiences": ("vault",)}, {"expiration_seconds": 600}], ids=["audience", "life"])
async def test_another_audience_or_life_is_another_token(tokens, change):
    first = await tokens.get("ns", "default", request_for())
    request = request_for()
    other = replace(request, spec=replace(request.spec, **change))
    assert (await tokens.get("ns", "default", other)).token != first.token
    assert (await tokens.get("ns", "default", request_for())).token == first.token


async def test_a_pod_of_the_same_name_that_came_later_has_a_token_of_its_own(tokens):
    first = await tokens.get("ns", "default", request_for(uid="u-1"))
    assert (await tokens.get("ns", "default", request_for(uid="u-2"))).token != first.token
    tokens.forget_pod("u-1")
    assert len(tokens) == 1


async def test_hours_without_the_server_and_a_token_when_it_is_back(tokens, server, clock):
    await tokens.get("ns", "default", request_for())
    server.error = Unreachable("away")
    for _ in range(5):
        clock.advance(HOUR + timedelta(seconds=1))
        with pytest.raises(TokenFailed, match="expired and refresh failed: away"):
            await tokens.get("ns", "default", request_for())
    server.error = None
    renewed = await tokens.get("ns", "default", request_for())
    assert renewed.refresh_at > clock.now()


class HeldServer(TokenServer):
    """Answers when a test lets it."""

    def __init__(self, clock):
        super().__init__(clock)
        self.held = []

    async def create_sub(self, struct, name, namespace, subresource, body):
        self.held.append(answered := asyncio.Event())
        await answered.wait()
        return await super().create_sub(struct, name, namespace, subresource, body)


async def test_tokens_are_requested_a_few_at_a_time(clock):
    server = HeldServer(clock)
    tokens = TokenCache(client=server, randomness=random.Random(1), clock=clock)
    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE + 2):
            group.create_task(tokens.get("ns", "sa", request_for(f"u{number}")))
        await clock.run(timedelta())
        assert len(server.held) == AT_ONCE
        server.held[0].set()
        await clock.run(timedelta())
        assert len(server.held) == AT_ONCE + 1
        await clock.run(LONGEST_TURN)
        assert len(server.held) == AT_ONCE + 2, "one that takes long keeps no other one waiting"
        for answered in server.held:
            answered.set()
    assert [body.spec.bound_object_ref.uid for *_, body in server.asked[:2]] == ["u0", "u1"]
    assert len(tokens) == AT_ONCE + 2
