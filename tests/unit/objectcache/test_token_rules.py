"""When a token is renewed, and under which key it is kept."""

from datetime import timedelta

import pytest

from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec, TokenRequestStatus
from klet.api.meta import ObjectMeta
from klet.api.times import Time
from klet.objectcache.token_rules import has_expired, refresh_after, refresh_due, token_key
from klet.testing.clock import START

BOUND = BoundObjectReference(kind="Pod", api_version="v1", name="p", uid="u")


def issued(minutes, *, seconds="as long"):
    lifetime = minutes * 60 if seconds == "as long" else seconds
    return TokenRequest(
        spec=TokenRequestSpec(expiration_seconds=lifetime),
        status=TokenRequestStatus(token="t", expiration_timestamp=Time.of(START + timedelta(minutes=minutes))),
    )


@pytest.mark.parametrize(
    ("token", "minutes", "expected"),
    [
        pytest.param(issued(60), 10, False, id="10 m of 60 m"),
        pytest.param(issued(60), 50, True, id="50 m of 60 m"),
        pytest.param(issued(60 * 60), 25 * 60, True, id="25 h of 60 h: a day is enough"),
        pytest.param(issued(60), 70, True, id="after its end"),
        pytest.param(issued(60, seconds=None), 50, False, id="a lifetime that nobody knows"),
        pytest.param(issued(60, seconds=10**18), 50, False, id="a lifetime longer than the calendar"),
        pytest.param(issued(60), 47, False, id="just before the last fifth"),
        pytest.param(issued(60), 48, True, id="the last fifth"),
    ],
)
def test_a_token_is_renewed(token, minutes, expected):
    due = refresh_due(token, jitter=timedelta())
    assert (due is not None and START + timedelta(minutes=minutes) >= due) is expected


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        pytest.param(issued(60), timedelta(minutes=48), id="after four fifths"),
        pytest.param(issued(60 * 60), timedelta(days=1), id="after a day"),
        pytest.param(issued(60, seconds=10**18), timedelta(days=1), id="longer than any length of time"),
        pytest.param(issued(60, seconds=None), None, id="a lifetime that nobody knows"),
    ],
)
def test_a_token_is_renewed_at_the_latest(token, expected):
    assert refresh_after(token) == expected


@pytest.mark.parametrize("hours", [1, 100])
def test_jitter_makes_it_earlier(hours):
    token = issued(hours * 60)
    due = refresh_due(token, jitter=timedelta())
    assert refresh_due(token, jitter=timedelta(seconds=9)) == due - timedelta(seconds=9)


def test_a_fifth_is_cut_to_whole_seconds():
    until = START + timedelta(minutes=60)
    assert refresh_due(issued(60, seconds=604), jitter=timedelta()) == until - timedelta(seconds=120)


def test_a_token_expires_after_its_end():
    assert not has_expired(issued(60), START + timedelta(minutes=60))
    assert has_expired(issued(60), START + timedelta(minutes=60, seconds=1))


def key(account="sa", namespace="ns", audiences=("a",), seconds=600, bound=BOUND, uid=""):
    spec = TokenRequestSpec(audiences=audiences, expiration_seconds=seconds, bound_object_ref=bound)
    return token_key(namespace, account, TokenRequest(metadata=ObjectMeta(uid=uid), spec=spec))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(key(account="other"), id="account"),
        pytest.param(key(namespace="other"), id="namespace"),
        pytest.param(key(audiences=("a", "b")), id="audiences"),
        pytest.param(key(seconds=601), id="lifetime"),
        pytest.param(key(bound=BoundObjectReference(kind="Pod", api_version="v1", name="p", uid="v")), id="pod"),
        pytest.param(key(uid="1"), id="request"),
    ],
)
def test_what_is_asked_for_makes_the_key(other):
    assert other != key()


def test_no_lifetime_is_zero():
    assert key(seconds=None) == key(seconds=0)


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        pytest.param(
            key(),
            '"sa"/"ns"/[]string{"a"}/600/v1.BoundObjectReference{Kind:"Pod", APIVersion:"v1", Name:"p", UID:"u"}/""',
            id="a token of a pod",
        ),
        pytest.param(
            key(audiences=(), seconds=None, bound=None),
            '"sa"/"ns"/[]string(nil)/0/v1.BoundObjectReference{Kind:"", APIVersion:"", Name:"", UID:""}/""',
            id="nothing but an account",
        ),
    ],
)
def test_a_key_is_shown_as_upstream_shows_it(found, shown):
    assert str(found) == shown
