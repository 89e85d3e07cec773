"""`klet images` and `klet disk`: the images of the node and its disk, through the agent's own API."""

import sys
from enum import StrEnum

from klet.api.klet_v1 import encode_readable
from klet.cli.client import AgentClient
from klet.cli.image_table import disk_lines, fate_table, holder_table, image_table
from klet.cli.json_text import as_json_text
from klet.model.foreign_text import as_terminal_text


class ImageFormat(StrEnum):
    """How `klet images` prints."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


def print_images(client: AgentClient, *, form: ImageFormat) -> None:
    listing = client.images()
    if form is ImageFormat.JSON:
        _write(as_json_text(encode_readable(listing)))
    elif listing.images:
        _write(image_table(listing.images, now=listing.now, is_wide=form is ImageFormat.WIDE))
    else:
        sys.stderr.write("No images.\n")


def print_disk(client: AgentClient, *, as_json: bool, has_fates: bool) -> None:
    """Print how full the disk of the images is; with `has_fates` also what a collection would do now."""
    preview = client.preview_collection()
    if as_json:
        _write(as_json_text(encode_readable(preview)))
        return
    blocks = ["\n".join([*disk_lines(preview), preview.summary]).strip() + "\n"]
    if has_fates and preview.fates:
        blocks.append(fate_table(preview.fates, now=preview.now))
    if preview.holders:
        blocks.append(holder_table(preview.holders))
    _write("\n".join(blocks))


def _write(text: str) -> None:
    sys.stdout.write(as_terminal_text(text))
    sys.stdout.flush()
