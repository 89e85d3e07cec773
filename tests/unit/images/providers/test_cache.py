"""How long answers are kept, and for what."""

from datetime import timedelta

import pytest

from klet.images.docker_config import RegistryLogin
from klet.images.providers.accounts import AccountKey
from klet.images.providers.cache import MOST_ANSWERS, MOST_BYTES, PURGE_EVERY, AnswerCache
from klet.images.providers.messages import CacheKeyType

APP, OTHER, ELSEWHERE = "r.example.com/team/app", "r.example.com/team/other", "s.example.com/team/app"
FIVE_MINUTES = timedelta(minutes=5)
ACCOUNT = AccountKey("ns", "n", "u", (), "")
LOGINS = {"r.example.com": RegistryLogin("u", "p")}


def put(cache, kind, *, logins=LOGINS, repository=APP, account=None, good_for=FIVE_MINUTES, now=0.0):
    cache.put(logins, kind=kind, repository=repository, account=account, good_for=good_for, now=now)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        pytest.param(CacheKeyType.IMAGE, {APP}, id="for one image"),
        pytest.param(CacheKeyType.REGISTRY, {APP, OTHER}, id="for a registry"),
        pytest.param(CacheKeyType.GLOBAL, {APP, OTHER, ELSEWHERE}, id="for everything"),
    ],
)
def test_what_an_answer_is_good_for(kind, found):
    cache = AnswerCache()
    put(cache, kind)
    assert {each for each in (APP, OTHER, ELSEWHERE) if cache.get(each, None, now=1.0) == LOGINS} == found
    assert cache.get(APP, ACCOUNT, now=1.0) is None


def test_the_answer_for_the_image_comes_first():
    cache = AnswerCache()
    for kind in (CacheKeyType.GLOBAL, CacheKeyType.REGISTRY, CacheKeyType.IMAGE):
        put(cache, kind, logins={kind: RegistryLogin("u", "p")})
    found = [list(cache.get(each, None, now=1.0)) for each in (APP, OTHER, ELSEWHERE)]
    assert found == [["Image"], ["Registry"], ["Global"]]


def test_an_answer_without_logins_is_kept_too():
    cache = AnswerCache()
    put(cache, CacheKeyType.IMAGE, logins={})
    assert cache.get(APP, None, now=1.0) == {}


def test_an_answer_is_kept_until_it_expires():
    cache = AnswerCache()
    put(cache, CacheKeyType.IMAGE)
    assert cache.get(APP, None, now=299.9) == LOGINS
    assert cache.get(APP, None, now=300.0) is None
    assert len(cache) == 0


@pytest.mark.parametrize("good_for", [timedelta(), timedelta(seconds=-1)])
def test_an_answer_that_is_not_to_be_kept(good_for):
    cache = AnswerCache()
    put(cache, CacheKeyType.IMAGE, good_for=good_for)
    assert cache.get(APP, None, now=0.0) is None


def test_what_nobody_asks_for_again_is_dropped_in_time():
    cache = AnswerCache()
    put(cache, CacheKeyType.IMAGE)
    put(cache, CacheKeyType.IMAGE, repository=OTHER, now=PURGE_EVERY.total_seconds() - 1)
    assert len(cache) == 2  # not at each answer
    put(cache, CacheKeyType.IMAGE, repository=ELSEWHERE, now=PURGE_EVERY.total_seconds())
    assert len(cache) == 2
    assert cache.get(OTHER, None, now=PURGE_EVERY.total_seconds()) == LOGINS


def test_the_number_of_answers_is_bounded():
    cache = AnswerCache()
    for number in range(MOST_ANSWERS + 10):
        put(cache, CacheKeyType.IMAGE, repository=f"r.example.com/{number}")
    assert len(cache) == MOST_ANSWERS
    assert cache.get("r.example.com/0", None, now=1.0) is None
    assert cache.get(f"r.example.com/{MOST_ANSWERS + 9}", None, now=1.0) == LOGINS


def test_the_bytes_of_answers_are_bounded():
    cache = AnswerCache()
    large = {"r": RegistryLogin("u", "x" * (MOST_BYTES // 4))}
    for number in range(5):
        put(cache, CacheKeyType.IMAGE, repository=f"r.example.com/{number}", logins=large)
        put(cache, CacheKeyType.IMAGE, repository=f"r.example.com/{number}", logins=large)  # counted once
    assert len(cache) == 3
    put(cache, CacheKeyType.IMAGE, logins={"r": RegistryLogin("u", "x" * MOST_BYTES)})
    assert len(cache) == 0  # one that fits nowhere is not kept
