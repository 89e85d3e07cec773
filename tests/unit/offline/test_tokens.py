from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec, TokenRequestStatus
from klet.api.config import ServiceAccount
from klet.api.meta import Status
from klet.api.times import Time
from klet.kube.errors import ApiError, Forbidden, Unreachable
from klet.offline.object_files import ObjectFiles
from klet.offline.object_formats import SealedFormat
from klet.offline.sealing import load_sealer
from klet.offline.store import KEY_SIZE
from klet.offline.tokens import KeptTokens, forget_tokens
from klet.testing.clock import ManualClock

HOUR = timedelta(hours=1)


def request(uid="u", audience="api", *, is_bound=True):
    bound = BoundObjectReference(kind="Pod", api_version="v1", name="p", uid=uid) if is_bound else None
    return TokenRequest(spec=TokenRequestSpec(audiences=(audience,), expiration_seconds=3600, bound_object_ref=bound))


class Issuer:
    """Makes tokens, unless something is wrong with it."""

    def __init__(self, clock):
        self.clock = clock
        self.error = None
        self.issued = 0

    async def create_sub(self, _struct, _name, _namespace, _subresource, body):
        if self.error is not None:
            raise self.error
        self.issued += 1
        until = Time.of(self.clock.now() + HOUR)
        return replace(body, status=TokenRequestStatus(token=f"token-{self.issued}", expiration_timestamp=until))

    async def read(self, path):
        return path.encode()


class Node:
    def __init__(self, directory, threads):
        self.clock = ManualClock()
        self.issuer = Issuer(self.clock)
        self.is_away = False
        sealer = load_sealer(bytes(KEY_SIZE))
        self.files = ObjectFiles(
            directory=directory,
            form=lambda owner: SealedFormat(kind="KeptToken", owner=owner, struct=TokenRequest, sealer=sealer),
            threads=threads,
            clock=self.clock,
        )

    async def token(self, body=None, subresource="token"):
        client = KeptTokens(inner=self.issuer, files=self.files, is_away=lambda: self.is_away, clock=self.clock)
        answer = await client.create_sub(ServiceAccount, "default", "ns", subresource, body or request())
        return answer.status.token


@pytest.fixture
def node(tmp_path, threads):
    return Node(tmp_path, threads)


async def test_a_token_is_used_again_while_nobody_can_make_one(node):
    assert await node.token() == "token-1"
    node.issuer.error = Unreachable("refused")
    assert await node.token() == "token-1"
    node.is_away = True
    assert await node.token() == "token-1"


async def test_it_is_sealed(node, tmp_path):
    await node.token()
    [file] = tmp_path.iterdir()
    assert b"token-1" not in file.read_bytes()


async def test_a_token_that_has_run_out_is_not_used(node):
    await node.token()
    node.issuer.error = Unreachable("refused")
    node.clock.advance(HOUR)
    with pytest.raises(Unreachable):
        await node.token()
    node.is_away = True
    with pytest.raises(Unreachable):
        await node.token()


@pytest.mark.parametrize(
    ("error", "is_used"),
    [
        pytest.param(Unreachable("cut"), True, id="no answer"),
        pytest.param(ApiError(Status(code=500)), True, id="a server that cannot answer"),
        pytest.param(Forbidden(Status(code=403)), False, id="a server that refuses"),
    ],
)
async def test_a_refusal_is_believed(node, error, is_used):
    await node.token()
    node.issuer.error = error
    if is_used:
        assert await node.token() == "token-1"
    else:
        with pytest.raises(type(error)):
            await node.token()


async def test_a_server_that_is_there_makes_a_new_one(node):
    assert [await node.token(), await node.token()] == ["token-1", "token-2"]
    node.issuer.error = Unreachable("refused")
    assert await node.token() == "token-2"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(request(uid="v"), id="another pod"),
        pytest.param(request(audience="vault"), id="another audience"),
        pytest.param(request(is_bound=False), id="no pod at all"),
    ],
)
async def test_a_token_serves_only_what_it_was_made_for(node, other):
    await node.token()
    node.issuer.error = Unreachable("refused")
    with pytest.raises(Unreachable):
        await node.token(other)


async def test_only_tokens_are_kept(node, tmp_path):
    await node.token(subresource="other")
    assert list(tmp_path.iterdir()) == []


async def test_tokens_go_with_their_pods(node):
    for uid in ("u", "v", "u2"):
        await node.token(request(uid=uid))
    await forget_tokens(["u", "u3"], node.files)
    node.issuer.error = Unreachable("refused")
    assert await node.token(request(uid="u")) == "token-1"
    for uid in ("v", "u2"):
        with pytest.raises(Unreachable):
            await node.token(request(uid=uid))
    await forget_tokens([], node.files)
    with pytest.raises(Unreachable):
        await node.token(request(uid="u"))


async def test_other_reads_pass(node):
    client = KeptTokens(inner=node.issuer, files=node.files, is_away=lambda: False, clock=node.clock)
    assert await client.read("/api/v1") == b"/api/v1"
