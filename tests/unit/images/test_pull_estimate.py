"""How far, how fast, how long: from manifests, ingests and blobs as a content store has them, also hostile ones."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from klet.cri.content import Ingest, StoredBlob
from klet.images.pull_estimate import (
    LARGEST_PART,
    MOST_PARTS,
    ImagePart,
    PullReading,
    Sample,
    choose_manifest,
    compute_left,
    compute_rate,
    keep_samples,
    measure,
    read_manifest,
)
from klet.model.pull_progress import PullStage

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIER, LATER = BEGAN - timedelta(hours=1), BEGAN + timedelta(seconds=1)


def digest(name):
    return f"sha256:{name * 64}"


A, B, C = digest("a"), digest("b"), digest("c")
M1, M2 = digest("1"), digest("2")


def manifest(*layers, config=(C, 10)):
    described = [{"digest": each, "size": size} for each, size in layers]
    return json.dumps({"config": {"digest": config[0], "size": config[1]}, "layers": described}).encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            manifest((A, 5), (B, 7)),
            (ImagePart(C, 10), ImagePart(A, 5), ImagePart(B, 7)),
            id="configuration and layers",
        ),
        pytest.param(manifest((A, 5), (A, 5)), (ImagePart(C, 10), ImagePart(A, 5)), id="a layer twice counts once"),
        pytest.param(b"", (), id="no bytes"),
        pytest.param(b"\xff\xfe", (), id="no text"),
        pytest.param(b'{"layers": 5}', (), id="no list"),
        pytest.param(b'{"manifests": []}', (), id="an index"),
        pytest.param(b"[" * 100_000, (), id="deeply nested"),
        pytest.param(manifest((A, -1)), (), id="a negative size"),
        pytest.param(manifest((A, LARGEST_PART + 1)), (), id="a size that no disk has"),
        pytest.param(manifest((A, 1 << 70)), (), id="a size beyond 64 bits"),
        pytest.param(manifest(("sha256:../../etc", 5)), (), id="a digest that is none"),
        pytest.param(manifest(*[(A, 1)] * (MOST_PARTS + 1)), (), id="too many layers"),
    ],
)
def test_manifest(data, expected):
    assert read_manifest(data) == expected


def blob(name, *, created=EARLIER, size=5):
    return StoredBlob(digest=name, size=size, created=created)


def ingest(name, offset, *, began=LATER):
    return Ingest(digest=name, began=began, offset=offset)


PARTS = {M1: (ImagePart(A, 5),), M2: (ImagePart(B, 7),)}


@pytest.mark.parametrize(
    ("manifests", "ingests", "wanted", "expected"),
    [
        pytest.param([], [], "", None, id="none is there yet"),
        pytest.param([blob(M1, created=LATER)], [], "", M1, id="the one that came since the pull began"),
        pytest.param([blob(M1)], [], "", None, id="an old one may be another version"),
        pytest.param([blob(M1)], [ingest(A, 1)], "", M1, id="an old one whose layer is fetched: a pull is repeated"),
        pytest.param([blob(M1), blob(M2, created=LATER)], [], "", M2, id="an old one and the new one"),
        pytest.param(
            [blob(M1), blob(M2, created=LATER)],
            [ingest(A, 1), ingest(B, 1)],
            "",
            M2,
            id="of two that are fetched, the new one",
        ),
        pytest.param(
            [blob(M1, created=LATER), blob(M2, created=LATER)], [ingest(A, 1), ingest(B, 1)], "", None, id="either"
        ),
        pytest.param([blob(M1), blob(M2)], [], M2, M2, id="the one that the image names by its digest"),
        pytest.param([blob(M1, created=LATER)], [], M2, M1, id="the image names an index"),
        pytest.param([blob(digest("9"), created=LATER)], [], "", None, id="one that cannot be read"),
    ],
)
def test_choice(manifests, ingests, wanted, expected):
    parts = {**PARTS, digest("9"): ()}
    assert choose_manifest(manifests, parts, ingests, digest=wanted, began=BEGAN) == expected


THREE = (ImagePart(A, 100), ImagePart(B, 50), ImagePart(C, 10))


def reading(*, fetched, arrived, total=160, complete=()):
    return PullReading(fetched=fetched, total=total, arrived=arrived, complete=frozenset(complete))


@pytest.mark.parametrize(
    ("ingests", "stored", "before", "expected"),
    [
        pytest.param([], [], None, reading(fetched=0, arrived=0), id="nothing"),
        pytest.param(
            [ingest(A, 40)],
            [blob(B), blob(C, created=LATER)],
            None,
            reading(fetched=100, arrived=50, complete=(B, C)),
            id="a layer that was there before has not arrived",
        ),
        pytest.param(
            [ingest(A, 40, began=EARLIER)], [], None, reading(fetched=40, arrived=0), id="an ingest that goes on again"
        ),
        pytest.param([ingest(A, 10**18)], [], None, reading(fetched=100, arrived=100), id="an offset beyond the size"),
        pytest.param([ingest(digest("f"), 10**18)], [], None, reading(fetched=0, arrived=0), id="another image's blob"),
        pytest.param(
            [],
            [],
            reading(fetched=110, arrived=50, complete=(A, C)),
            reading(fetched=110, arrived=50, complete=(A, C)),
            id="a layer that was dropped after it was unpacked stays fetched",
        ),
        pytest.param(
            [ingest(A, 30)],
            [],
            reading(fetched=60, arrived=60),
            reading(fetched=60, arrived=60),
            id="a fetch that begins again does not count backwards",
        ),
        pytest.param(
            [],
            [blob(A, created=LATER), blob(B, created=LATER), blob(C, created=LATER)],
            None,
            reading(fetched=160, arrived=160, complete=(A, B, C)),
            id="everything",
        ),
    ],
)
def test_measure(ingests, stored, before, expected):
    assert measure(THREE, ingests, stored, before=before, began=BEGAN) == expected


@pytest.mark.parametrize(
    ("fetched", "expected"), [(0, PullStage.FETCHING), (159, PullStage.FETCHING), (160, PullStage.UNPACKING)]
)
def test_stage(fetched, expected):
    assert reading(fetched=fetched, arrived=0).stage is expected


def samples(*pairs):
    return tuple(Sample(at, arrived) for at, arrived in pairs)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param((), None, id="no look"),
        pytest.param(samples((0, 0)), None, id="the beginning alone"),
        pytest.param(samples((0, 0), (0.1, 1000)), None, id="too short a time"),
        pytest.param(samples((0, 0), (4, 400)), 100.0, id="one look: since the beginning"),
        pytest.param(samples((0, 0), (100, 1000), (102, 1400)), 200.0, id="the last seconds, not the average"),
        pytest.param(samples((0, 0), (100, 1000), (200, 3000)), 15.0, id="looks far apart: since the beginning"),
        pytest.param(samples((0, 0), (50, 900), (55, 900), (60, 900)), 0.0, id="nothing arrives any more"),
        pytest.param(samples((0, 0), (5, 500), (5, 500)), 100.0, id="two looks at once"),
        pytest.param(samples((0, 500), (5, 100)), 0.0, id="a count that went back"),
    ],
)
def test_rate(given, expected):
    assert compute_rate(given) == expected


def test_only_the_samples_that_a_rate_may_need_are_kept():
    many = samples((0, 0), *((at / 4, at) for at in range(400)))
    kept = keep_samples(many)
    assert kept[0] == many[0]
    assert kept[-1] == many[-1]
    assert len(kept) == 42
    assert compute_rate(kept) == compute_rate(many) == 4.0


@pytest.mark.parametrize(
    ("fetched", "rate", "expected"),
    [
        pytest.param(60, 10.0, timedelta(seconds=10), id="the rest at this rate"),
        pytest.param(60, None, None, id="no rate yet"),
        pytest.param(60, 0.0, None, id="nothing arrives"),
        pytest.param(60, 0.0001, None, id="next to nothing arrives"),
        pytest.param(160, 10.0, None, id="everything is there"),
    ],
)
def test_time_left(fetched, rate, expected):
    assert compute_left(reading(fetched=fetched, arrived=0), rate) == expected


def test_a_time_left_beyond_reason_is_not_said():
    assert compute_left(reading(fetched=0, arrived=0, total=1 << 50), 1.0) is None
