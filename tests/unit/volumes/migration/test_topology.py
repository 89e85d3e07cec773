"""Zones and regions of translated volumes."""

import pytest

from klet.api.codec import convert, to_builtins
from klet.api.storage import PersistentVolume
from klet.volumes.migration.topology import translate_zone_and_region, translate_zones

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
KEY = "topology.example.com/zone"


def volume(*terms, labels=None):
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}}
    spec = {"nodeAffinity": affinity} if terms else {}
    return convert(PersistentVolume, {"metadata": {"name": "pv", "labels": labels or {}}, "spec": spec})


def is_in(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def terms_of(found):
    affinity = to_builtins(found.spec).get("nodeAffinity")
    return (
        None if affinity is None else [term["matchExpressions"] for term in affinity["required"]["nodeSelectorTerms"]]
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(volume(), None, id="nothing is known"),
        pytest.param(volume([is_in(ZONE, "a")]), [[is_in(KEY, "a")]], id="affinity"),
        pytest.param(volume([is_in(BETA_ZONE, "a", "b")]), [[is_in(KEY, "a", "b")]], id="affinity by the old name"),
        pytest.param(
            volume([is_in(BETA_ZONE, "a"), is_in(BETA_REGION, "r")]),
            [[is_in(KEY, "a"), is_in(REGION, "r")]],
            id="the old region gets its new name",
        ),
        pytest.param(volume([is_in(ZONE, "a")], labels={ZONE: "b"}), [[is_in(KEY, "a")]], id="affinity before labels"),
        pytest.param(volume(labels={ZONE: "a"}), [[is_in(KEY, "a")]], id="label"),
        pytest.param(volume(labels={BETA_ZONE: "b__a__b"}), [[is_in(KEY, "a", "b")]], id="several zones in a label"),
        pytest.param(volume(labels={ZONE: " __"}), None, id="a label without a zone"),
        pytest.param(
            volume([is_in("x", "1")], [is_in("y", "2")], labels={ZONE: "a"}),
            [[is_in("x", "1"), is_in(KEY, "a")], [is_in("y", "2"), is_in(KEY, "a")]],
            id="the label joins every term",
        ),
    ],
)
def test_zones(given, expected):
    assert terms_of(translate_zones(given, KEY)) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(volume([is_in(ZONE, "a"), is_in(REGION, "r")]), [[is_in("z", "a"), is_in("r", "r")]], id="both"),
        pytest.param(
            volume(labels={ZONE: "a__b", REGION: "r"}), [[is_in("z", "a__b"), is_in("r", "r")]], id="one zone a label"
        ),
        pytest.param(volume(labels={BETA_ZONE: "a"}), [[is_in("z", "a")]], id="the old name"),
    ],
)
def test_zones_and_regions(given, expected):
    assert terms_of(translate_zone_and_region(given, "z", "r")) == expected
