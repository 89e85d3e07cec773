"""Requests that no client of Kubernetes sends: each gets an answer that says so, and none an exception."""

from contextlib import suppress

import msgspec
import pytest

from klet.aio.clock import SystemClock
from klet.api.config import ConfigMap
from klet.api.kinds import kind_of
from klet.embedded.identities import Identities
from klet.embedded.patching import DEEPEST, MERGE_PATCH, TYPES, Patch, is_too_deep
from klet.embedded.reading import LONGEST_WATCH, read_watch_options
from klet.embedded.refusals import RequestRefused
from klet.embedded.store import Store

DEEP = msgspec.json.decode(b'{"a":' * 900 + b"1" + b"}" * 900)


@pytest.mark.parametrize("token", ["ä.b.c", "a.b.ÿ", "a.b.\udcff", "\udcff.b.c", "..", "."])
def test_a_token_of_unusual_characters_is_no_users(token):
    identities = Identities(store=Store.open(), tokens={}, key=b"key", clock=SystemClock())
    assert identities.review(token, ()) is None


@pytest.mark.parametrize("seconds", ["9" * 5000, "9" * 17, "٣", "0", "-1", "1e3"])
def test_no_number_of_seconds_breaks_a_watch(seconds):
    assert read_watch_options({"timeoutSeconds": seconds}).timeout == LONGEST_WATCH


@pytest.mark.parametrize("version", ["1" * 5000, "٣", "-1", "x"])
def test_a_version_that_is_no_number_is_refused(version):
    with pytest.raises(RequestRefused):
        read_watch_options({"resourceVersion": version})


@pytest.mark.parametrize("type_", TYPES)
def test_a_patch_in_a_thousand_levels_is_applied_or_refused(type_):
    change = [{"op": "copy", "from": "/x", "path": "/x/a"}] * 2000 if type_ == TYPES[0] else {"x": DEEP}
    with suppress(RequestRefused):
        Patch(type_, msgspec.json.encode(change)).apply({"metadata": {}, "x": DEEP}, kind_of(ConfigMap))


@pytest.mark.parametrize("shape", [b'{"a":%s}', b"[%s]"])
@pytest.mark.parametrize(("levels", "is_deep"), [(DEEPEST - 1, False), (DEEPEST + 1, True), (900, True)])
def test_objects_that_could_not_be_read_again_are_too_deep(shape, levels, is_deep):
    before, after = shape.split(b"%s")
    assert is_too_deep(msgspec.json.decode(before * levels + b"1" + after * levels)) == is_deep


def test_a_patch_does_not_make_an_object_too_deep():
    change = msgspec.json.encode({"x": DEEP})
    with pytest.raises(RequestRefused):
        Patch(MERGE_PATCH, change).apply({"metadata": {}}, kind_of(ConfigMap))
