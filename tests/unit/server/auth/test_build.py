"""The auth filter that a configuration asks for."""

import random

import pytest

from klet.config.sections import (
    AnonymousAuthentication,
    Authentication,
    Authorization,
    WebhookAuthentication,
)
from klet.server.auth.build import AuthError, AuthSettings, build_auth_filter
from klet.server.auth.filter import AuthRefusal, AuthRequest
from klet.server.auth.identity import User
from klet.testing.clock import ManualClock

ANONYMOUS = Authentication(anonymous=AnonymousAuthentication(enabled=True))
WEBHOOK = Authentication(webhook=WebhookAuthentication(enabled=True))
ALWAYS = Authorization(mode="AlwaysAllow")


class NoApi:
    async def review(self, path, body):
        raise AssertionError(path, body)


def build(authentication, authorization, *, reviewer=None):
    settings = AuthSettings(
        authentication=authentication, authorization=authorization, node_name="node-1", is_fine_grained=True
    )
    return build_auth_filter(
        settings,
        reviewer=reviewer,
        authorities=None,
        randomness=random.Random(1),
        clock=ManualClock(),
    )


@pytest.mark.parametrize(
    ("authentication", "authorization", "reviewer", "says"),
    [
        pytest.param(Authentication(), ALWAYS, None, "no authentication method configured: ", id="nobody gets in"),
        pytest.param(WEBHOOK, ALWAYS, None, "no client provided, cannot use webhook authentication: ", id="no API"),
        pytest.param(ANONYMOUS, Authorization(), None, "no authorization mode specified: ", id="no mode"),
        pytest.param(ANONYMOUS, Authorization(mode="RBAC"), None, 'unknown authorization mode "RBAC": ', id="a mode"),
        pytest.param(
            ANONYMOUS,
            Authorization(mode="Webhook"),
            None,
            "no client provided, cannot use webhook authorization: ",
            id="nobody to ask about rights",
        ),
    ],
)
def test_settings_that_cannot_work(authentication, authorization, reviewer, says):
    with pytest.raises(AuthError, match=f"^{says}"):
        build(authentication, authorization, reviewer=reviewer)


async def test_anonymous_and_nobody():
    open_filter = build(ANONYMOUS, ALWAYS)
    assert await open_filter.check(AuthRequest(method="GET", path="/pods")) == User(
        "system:anonymous", groups=("system:unauthenticated",)
    )
    closed = build(WEBHOOK, Authorization(mode="Webhook"), reviewer=NoApi())
    assert await closed.check(AuthRequest(method="GET", path="/pods")) == AuthRefusal(401, "Unauthorized")
