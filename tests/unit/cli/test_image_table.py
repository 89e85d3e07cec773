"""The tables of `klet images` and `klet disk`."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from klet.api.klet_v1_images import (
    DiskHolder,
    ImageDisk,
    ImageFate,
    ImageGcPreview,
    ImageGcRules,
    ImageUsage,
    NodeImage,
    NodeImageListing,
)
from klet.cli.image_load import find_snapshotter_in
from klet.cli.image_table import image_table, name_of, users_of
from klet.cli.images import ImageFormat, print_disk, print_images

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MIB = 1 << 20
WEB = ImageUsage(how="container", namespace="default", pod="web", container="main", running=True)
SIDE = ImageUsage(how="container", namespace="default", pod="web", container="side")
OTHER = ImageUsage(how="starting", namespace="default", pod="other")
SANDBOX = ImageUsage(how="sandbox")
USED = NodeImage(
    id=f"sha256:{'a' * 64}",
    tags=("app:1", "app:latest"),
    digests=(f"app@sha256:{'d' * 64}",),
    size_bytes=30 * MIB,
    users=(WEB, SIDE, OTHER),
    first_detected=NOW,
)
UNUSED = NodeImage(id=f"sha256:{'b' * 64}", pinned=True, first_detected=NOW, unused_since=NOW - timedelta(minutes=5))


class Agent:
    """Answers with what it was given."""

    def __init__(self, images=(), preview=None):
        self._images = images
        self._preview = preview

    def images(self):
        return NodeImageListing(now=NOW, images=self._images)

    def preview_collection(self):
        return self._preview


def test_table():
    assert image_table([USED, UNUSED], now=NOW, is_wide=False).splitlines() == [
        "IMAGE          SIZE       USED BY            UNUSED FOR   PINNED",
        "app:1 (+1)     30.0 MiB   default/web (+1)   <none>       no",
        "bbbbbbbbbbbb   0 B        <none>             5m           yes",
    ]


def test_wide_table():
    header, first, second = image_table([USED, UNUSED], now=NOW, is_wide=True).splitlines()
    assert header.split()[-2:] == ["ID", "DIGEST"]
    assert first.split()[:3] == ["app:1,app:latest", "30.0", "MiB"]
    assert "default/web/main,default/web/side,default/other" in first
    assert first.split()[-2:] == ["a" * 12, f"sha256:{'d' * 64}"]
    assert second.split()[-2:] == ["b" * 12, "<none>"]


@pytest.mark.parametrize(
    ("users", "is_wide", "expected"),
    [
        pytest.param((), False, "<none>", id="nobody"),
        pytest.param((), True, "<none>", id="nobody, wide"),
        pytest.param((WEB, SIDE), False, "default/web", id="one pod"),
        pytest.param((WEB, OTHER, SANDBOX), False, "default/web (+2)", id="several"),
        pytest.param((SANDBOX, SANDBOX), True, "sandboxes", id="sandboxes are one"),
        pytest.param((ImageUsage(how="container", container="lost"),), False, "lost", id="a container of no pod"),
        pytest.param((ImageUsage(how="thawing"),), False, "thawing", id="a use of a newer agent"),
    ],
)
def test_users(users, is_wide, expected):
    assert users_of(users, is_wide=is_wide) == expected


def test_an_image_without_a_tag_is_named_by_its_digest():
    image = NodeImage(id="sha256:x", digests=("app@sha256:y",), first_detected=NOW)
    assert name_of(image) == "app@sha256:y"


def test_images_as_json(capsys):
    print_images(Agent((USED,)), form=ImageFormat.JSON)
    [image] = json.loads(capsys.readouterr().out)["images"]
    assert (image["sizeBytes"], image["unusedSince"], len(image["users"])) == (30 * MIB, None, 3)


def test_no_images(capsys):
    print_images(Agent(), form=ImageFormat.TABLE)
    assert capsys.readouterr() == ("", "No images.\n")


def preview(**rules):
    given = {"enabled": True, "high_threshold_percent": 85, "low_threshold_percent": 80, "minimum_age_seconds": 120}
    return ImageGcPreview(
        now=NOW,
        rules=ImageGcRules(**{**given, **rules}),
        disk=ImageDisk(capacity_bytes=100 * MIB, available_bytes=10 * MIB, used_percent=90),
        summary="one image would go",
        fates=(
            ImageFate(image=UNUSED, removed=True, reason="space", message="unused for 5m"),
            ImageFate(image=USED, removed=False, reason="inUse"),
        ),
        holders=(DiskHolder(kind="image", name="app:1", size_bytes=30 * MIB, users=(WEB,)),),
    )


def test_disk_and_what_a_collection_would_do(capsys):
    print_disk(Agent(preview=preview()), as_json=False, has_fates=True)
    assert capsys.readouterr().out.splitlines() == [
        "Disk of the images: 90 % used, 90.0 MiB of 100.0 MiB, 10.0 MiB free.",
        "Every five minutes, from 85 % on, unused images are removed until 80 % are left.",
        "one image would go",
        "",
        "IMAGE          SIZE       UNUSED FOR   WOULD    WHY",
        "bbbbbbbbbbbb   0 B        5m           remove   unused for 5m",
        "app:1 (+1)     30.0 MiB   <none>       keep     inUse",
        "",
        "HELD BY   KIND    SIZE       USED BY",
        "app:1     image   30.0 MiB   default/web/main",
    ]


def test_disk_alone(capsys):
    print_disk(Agent(preview=preview()), as_json=False, has_fates=False)
    assert "WOULD" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        pytest.param({"enabled": False}, "Image garbage collection is off", id="no periodic collection"),
        pytest.param({"maximum_age_seconds": 86400.0}, "unused for 24h are removed in any case", id="an age"),
    ],
)
def test_rules(capsys, rules, says):
    print_disk(Agent(preview=preview(**rules)), as_json=False, has_fates=False)
    assert says in capsys.readouterr().out


def test_preview_as_json(capsys):
    print_disk(Agent(preview=preview()), as_json=True, has_fates=False)
    assert [fate["removed"] for fate in json.loads(capsys.readouterr().out)["fates"]] == [True, False]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param('{"containerd": {"snapshotter": "native", "x": 1}}', "native", id="containerd 1"),
        pytest.param('{"containerd": {"runtimes": {}}}', "", id="containerd 2 does not say"),
        pytest.param("", "", id="nothing"),
        pytest.param("[" * 100_000, "", id="deeply nested"),
        pytest.param('{"containerd": {"snapshotter": 5}}', "", id="another shape"),
    ],
)
def test_snapshotter_of_the_cri(config, expected):
    assert find_snapshotter_in(config) == expected
