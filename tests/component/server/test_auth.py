"""Who may use the API: client certificates, reviewed tokens, anonymous, and what the API server lets them do."""

import base64
from datetime import timedelta

import aiohttp
import pytest
from msgspec.structs import replace

from klet.api.authentication import TokenReview, TokenReviewStatus, UserInfo
from klet.api.authorization import SubjectAccessReviewStatus
from klet.api.meta import Status
from klet.kube.errors import Unreachable, api_error
from klet.server.auth.access import AccessReviews, AccessSettings
from klet.server.auth.identity import User
from klet.server.auth.reviews import Retrying
from klet.testing.clock import ManualClock

JANE = User("jane", groups=("readers",))
TOKEN = {"Authorization": "Bearer good"}


class Api:
    """Answers reviews as an API server would, and notes them."""

    def __init__(self, *, allowed=()):
        self.allowed = set(allowed)
        self.asked = []
        self.errors = []

    async def review(self, path, body):
        self.asked.append((path, body.spec))
        if self.errors:
            raise self.errors.pop(0)
        if isinstance(body, TokenReview):
            user = UserInfo(username="jane", uid="7", groups=("readers",), extra={"scopes": ("a", "b")})
            good = body.spec.token == "good"
            return replace(body, status=TokenReviewStatus(authenticated=good, user=user if good else UserInfo()))
        attributes = body.spec.resource_attributes
        allowed = (attributes.verb, attributes.subresource) in self.allowed
        return replace(body, status=SubjectAccessReviewStatus(allowed=allowed))

    def reviews_of(self, kind):
        return [spec for path, spec in self.asked if path.endswith(kind)]


class InstantClock(ManualClock):
    """Time that passes only where somebody waits."""

    async def sleep(self, duration):
        self.advance(duration)


class NoRandomness:
    def random(self):
        return 0.0


def reviews(api, clock=None, *, allowed=timedelta(minutes=5), denied=timedelta(seconds=30)):
    clock = clock or InstantClock()
    settings = AccessSettings(node_name="node-1", keep_allowed=allowed, keep_denied=denied)
    retrying = Retrying(clock=clock, randomness=NoRandomness())
    return AccessReviews(reviewer=api, retrying=retrying, settings=settings, clock=clock)


async def test_a_certificate_of_the_authority_is_enough(kubelet):
    assert await kubelet.get("/healthz") == (200, "ok")
    assert await kubelet.get("/healthz", name=None) == (401, "Unauthorized")


@pytest.mark.parametrize("name", ["stranger", "server-as-client"])
@pytest.mark.parametrize("allows_anonymous", [True, False])
async def test_a_bad_certificate_ends_in_an_alert_whatever_comes_with_it(start, name, allows_anonymous):
    async with start(allows_anonymous=allows_anonymous, reviewer=Api()) as kubelet:
        with pytest.raises(aiohttp.ClientError, match="ALERT"):
            await kubelet.get("/healthz", name=name, headers=TOKEN)
        assert await kubelet.get("/healthz", name=None, headers=TOKEN) == (200, "ok")


async def test_anonymous_users_are_accepted_where_they_may(start):
    async with start(allows_anonymous=True) as kubelet:
        assert await kubelet.get("/healthz", name=None) == (200, "ok")


async def test_a_bad_token_is_no_anonymous_user(start):
    async with start(allows_anonymous=True, reviewer=Api()) as kubelet:
        bad = {"Authorization": "Bearer bad"}
        assert await kubelet.get("/healthz", name=None, headers=bad) == (401, "Unauthorized")
        assert await kubelet.get("/healthz", name=None) == (200, "ok")


async def test_a_token_of_bytes_that_are_no_text_is_a_bad_token(start):
    api = Api()
    async with start(reviewer=api, allows_anonymous=True) as kubelet, kubelet.connected(None) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    assert api.reviews_of("tokenreviews") == []


async def test_tokens_are_asked_about_once(start):
    api = Api()
    async with start(reviewer=api) as kubelet:
        for _ in range(3):
            assert await kubelet.get("/healthz", name=None, headers=TOKEN) == (200, "ok")
            assert (await kubelet.get("/healthz", name=None, headers={"Authorization": "Bearer bad"}))[0] == 401
    assert [spec.token for spec in api.reviews_of("tokenreviews")] == ["good", "bad"]


async def test_a_failed_review_is_not_remembered(start):
    api = Api()
    api.errors = [api_error(Status(code=403, message="no"))]
    async with start(reviewer=api, allows_anonymous=True) as kubelet:
        assert await kubelet.get("/healthz", name=None, headers=TOKEN) == (401, "Unauthorized")
        assert await kubelet.get("/healthz", name=None, headers=TOKEN) == (200, "ok")


async def test_a_token_may_come_as_subprotocol_of_a_websocket_and_goes_no_further(start):
    encoded = base64.urlsafe_b64encode(b"good").rstrip(b"=").decode()
    head = (
        "GET /exec/default/web/main?output=1&command=ls HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Protocol: v4.channel.k8s.io, "
        f"base64url.bearer.authorization.k8s.io.{encoded}\r\n\r\n"
    )
    async with start(reviewer=Api()) as kubelet:
        async with kubelet.connected(None) as (reader, writer):
            writer.write(head.encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        assert encoded.encode() not in kubelet.streamer.heads[0]
        async with kubelet.connected(None) as (reader, writer):
            writer.write(head.replace("websocket", "SPDY/3.1").encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("method", "path", "allowed", "answer"),
    [
        ("GET", "/pods", {("get", "pods")}, 200),
        ("GET", "/pods", {("get", "proxy")}, 200),
        ("GET", "/runningpods/", {("get", "pods")}, 200),
        ("GET", "/healthz", {("get", "healthz")}, 200),
        ("GET", "/configz", {("get", "configz")}, 200),
        ("GET", "/pods", {("create", "proxy")}, "verb=get, resource=nodes, subresource(s)=[pods proxy]"),
        (
            "GET",
            "/containerLogs/default/web/main",
            {("get", "log")},
            "verb=get, resource=nodes, subresource(s)=[proxy]",
        ),
        (
            "POST",
            "/run/default/web/main?cmd=ls",
            {("get", "proxy")},
            "verb=create, resource=nodes, subresource(s)=[proxy]",
        ),
        (
            "POST",
            "/checkpoint/default/web/main",
            {("create", "proxy")},
            "verb=create, resource=nodes, subresource(s)=[checkpoint]",
        ),
        ("POST", "/checkpoint/default/web/main", {("create", "checkpoint")}, 200),
        ("HEAD", "/pods", set(), ""),
        ("GET", "/stats/summary", {("get", "proxy")}, "verb=get, resource=nodes, subresource(s)=[stats]"),
        ("GET", "/exec/nowhere", {("get", "proxy")}, "verb=create, resource=nodes, subresource(s)=[proxy]"),
    ],
)
async def test_what_users_may_do(start, method, path, allowed, answer):
    api = Api(allowed=allowed)
    async with start(reviewer=api, authorizer=reviews(api)) as kubelet:
        status, body = await kubelet.get(path, name=None, method=method, headers=TOKEN)
    if answer == 200:
        assert status == 200
    else:
        assert status == 403
        assert body == (f"Forbidden (user=jane, {answer})\n" if answer else "")


STREAMS = ["/exec/default/web/main?output=1", "/attach/default/web/main?output=1", "/portForward/default/web"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", STREAMS)
async def test_to_stream_is_to_create_by_whatever_method(start, method, path):
    head = f"{method} {path} HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n{{}}\r\n"
    api = Api(allowed={(verb, "proxy") for verb in ("get", "update", "patch", "delete")} | {("create", "pods")})
    async with start(reviewer=api, authorizer=reviews(api), allows_anonymous=True) as kubelet:
        for credentials in ("", "Authorization: Bearer good\r\n"):
            async with kubelet.connected(None) as (reader, writer):
                writer.write(head.format(credentials).encode())
                assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")
        assert kubelet.streamer.heads == []
    api = Api(allowed={("create", "proxy")})
    async with start(reviewer=api, authorizer=reviews(api)) as kubelet, kubelet.connected(None) as (reader, writer):
        writer.write(head.format("Authorization: Bearer good\r\n").encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")


async def test_the_review_says_all_that_is_known(start):
    api = Api(allowed={("get", "healthz")})
    async with start(reviewer=api, authorizer=reviews(api)) as kubelet:
        await kubelet.get("/healthz", name=None, headers=TOKEN)
        await kubelet.get("/healthz")
    token, certificate = api.reviews_of("subjectaccessreviews")
    assert (token.user, token.uid, token.groups, token.extra) == (
        *("jane", "7", ("readers", "system:authenticated")),
        {"scopes": ("a", "b")},
    )
    attributes = token.resource_attributes
    assert (attributes.verb, attributes.version, attributes.resource, attributes.subresource, attributes.name) == (
        *("get", "v1", "nodes", "healthz", "node-1"),
    )
    assert (attributes.group, attributes.namespace) == ("", "")
    assert (certificate.user, certificate.groups) == ("admin", ("people", "masters", "system:authenticated"))
    [(name, [fingerprint])] = certificate.extra.items()
    assert name == "authentication.kubernetes.io/credential-id"
    assert fingerprint.startswith("X509SHA256=")
    assert len(fingerprint) == len("X509SHA256=") + 64


async def test_answers_are_remembered_for_their_time():
    clock, api = InstantClock(), Api(allowed={("get", "pods")})
    access = reviews(api, clock)
    user = JANE
    for _ in range(3):
        assert await access.allows(user, "get", "pods")
        assert not await access.allows(user, "get", "proxy")
    assert len(api.asked) == 2
    clock.advance(timedelta(seconds=31))
    await access.allows(user, "get", "pods")
    await access.allows(user, "get", "proxy")
    assert len(api.asked) == 3
    clock.advance(timedelta(minutes=5))
    await access.allows(user, "get", "pods")
    assert len(api.asked) == 4


async def test_users_with_endless_attributes_are_not_remembered():
    api = Api(allowed={("get", "pods")})
    access = reviews(api)
    user = User("jane", groups=("g" * 10_001,))
    for _ in range(2):
        assert await access.allows(user, "get", "pods")
    assert len(api.asked) == 2


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("connection reset"),
        api_error(Status(code=429)),
        api_error(Status(code=500)),
        api_error(Status(code=504)),
    ],
)
async def test_an_api_server_that_fails_for_a_moment_is_asked_again(start, error):
    api = Api(allowed={("get", "healthz")})
    api.errors = [error] * 4
    async with start(authorizer=reviews(api)) as kubelet:
        assert await kubelet.get("/healthz") == (200, "ok")
    assert len(api.asked) == 5


@pytest.mark.parametrize(("error", "asked"), [(Unreachable("away"), 5), (api_error(Status(code=403)), 1)])
async def test_no_token_is_accepted_while_the_api_server_does_not_answer(start, error, asked):
    api = Api(allowed={("get", "pods")})
    api.errors = [error] * asked
    async with start(authorizer=reviews(api)) as kubelet:
        assert await kubelet.get("/pods") == (
            500,
            "Authorization error (user=admin, verb=get, resource=nodes, subresource=pods)",
        )
    assert len(api.asked) == asked


async def test_the_delays_between_questions_grow():
    clock = InstantClock()
    api = Api()
    api.errors = [Unreachable("away")] * 4
    began = clock.monotonic()
    await reviews(api, clock).allows(JANE, "get", "pods")
    assert clock.monotonic() - began == pytest.approx(0.5 + 0.75 + 1.125 + 1.6875)


async def test_another_authority_is_trusted_as_soon_as_its_file_is_there(kubelet, logged):
    async with logged("Serving with a certificate"):
        kubelet.ca.write_bytes(kubelet.pki.pair("other-ca")[0].read_bytes())
    assert await kubelet.get("/healthz", name="stranger") == (200, "ok")


async def test_a_damaged_file_of_authorities_changes_nothing(kubelet, logged):
    async with logged("stay as they were"):
        kubelet.ca.write_text("no certificate")
    assert await kubelet.get("/healthz") == (200, "ok")


async def test_no_authority_no_question_for_certificates(start):
    async with start(with_client_ca=False, allows_anonymous=True) as kubelet:
        assert await kubelet.get("/healthz", name="stranger") == (200, "ok")


async def test_paths_that_there_are_not_need_no_credentials(kubelet):
    assert await kubelet.get("/nothing", name=None) == (404, "404 page not found\n")
    assert await kubelet.get("/exec/nothing", name=None) == (401, "Unauthorized")
    assert (await kubelet.get("/stats", name=None, allow_redirects=False))[0] == 307
