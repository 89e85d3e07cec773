"""What a request brings to prove who asks."""

import base64

import pytest

from klet.server.auth.identity import (
    Rejected,
    User,
    anonymous,
    as_authenticated,
    read_bearer,
    read_token_protocol,
    without_token,
)


def token_protocol(token: bytes) -> str:
    return "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(token).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("  BEARER abc  ", "abc"),
        ("Bearer abc def", "abc"),
        ("Bearer", ""),
        ("Bearer  abc", ""),
        ("Basic abc", ""),
        ("", ""),
    ],
)
def test_bearer_tokens(header, token):
    assert read_bearer(header) == token


GOOD = token_protocol(b"s\xc3\xa9cret?>")


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        pytest.param((), "", id="none"),
        pytest.param(("v4.channel.k8s.io",), "", id="no token"),
        pytest.param((f"{GOOD}, v4.channel.k8s.io",), "sécret?>", id="beside another, in one header"),
        pytest.param((GOOD, "v4.channel.k8s.io"), "sécret?>", id="in a header of its own"),
        pytest.param((GOOD,), Rejected("missing additional subprotocol"), id="alone"),
        pytest.param(
            (GOOD, GOOD, "x"), Rejected("multiple base64.bearer.authorization tokens specified"), id="two of them"
        ),
        pytest.param(
            ("base64url.bearer.authorization.k8s.io.***", "x"),
            Rejected("invalid base64.bearer.authorization token encoding"),
            id="not base64",
        ),
        pytest.param(
            (token_protocol(b"\xff\xfe"), "x"),
            Rejected("invalid base64.bearer.authorization token encoding"),
            id="not UTF-8",
        ),
        pytest.param(
            ("base64url.bearer.authorization.k8s.io.\udce9\udce9\udce9\udce9", "x"),
            Rejected("invalid base64.bearer.authorization token encoding"),
            id="not ASCII",
        ),
    ],
)
def test_tokens_among_subprotocols(offered, expected):
    assert read_token_protocol(offered) == expected


def test_the_token_is_not_passed_on():
    assert without_token(f"v4.channel.k8s.io, {GOOD} ,channel.k8s.io") == "v4.channel.k8s.io,channel.k8s.io"


def test_groups():
    assert as_authenticated(User("jane", groups=("a",))).groups == ("a", "system:authenticated")
    known = User("jane", groups=("system:authenticated",))
    assert as_authenticated(known) == known
    assert as_authenticated(anonymous()) == User("system:anonymous", groups=("system:unauthenticated",))
