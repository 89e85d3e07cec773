"""The schema of the agent's own API for images."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import fields

from klet.api.klet_v1 import encode
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
from klet.images.gc_plan import ImageFateReason
from klet.testing.strict import decode_strictly

TEXT = (Path(__file__).parents[3] / "docs" / "image-collection.md").read_text().replace("[]`", "`")
DOCUMENTED = (DiskHolder, ImageDisk, ImageFate, ImageGcPreview, ImageGcRules, ImageUsage, NodeImage, NodeImageListing)
AT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("cls", DOCUMENTED)
def test_every_field_is_documented(cls):
    assert [each.encode_name for each in fields(cls) if f"`{each.encode_name}`" not in TEXT] == []


def test_every_reason_is_documented():
    assert [reason for reason in ImageFateReason if f"`{reason}`" not in TEXT] == []


def test_what_is_written_is_read():
    user = ImageUsage(how="container", namespace="default", pod="web", uid="u", container="main", running=True)
    image = NodeImage(id="sha256:1", tags=("a:1",), users=(user,), first_detected=AT, last_used=AT)
    listing = NodeImageListing(now=AT, images=(image,))
    assert decode_strictly(NodeImageListing, encode(listing)) == listing
