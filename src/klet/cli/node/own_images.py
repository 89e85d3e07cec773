"""The images that every node has without a registry: pause, and a whole busybox."""

import io
import json
import tarfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from klet.aio.clock import Clock
from klet.cli.node.node import NodeError
from klet.cri.port import ImageService
from klet.host.containerd_config import PAUSE_IMAGE
from klet.host.files import read_bytes, remove_file, write_atomic
from klet.host.images import BUSYBOX_IMAGE, build_busybox_image, build_pause_image, import_image, read_applets
from klet.wire import cri_v1_pb2 as pb

VISIBLE_DEADLINE = timedelta(seconds=10)
POLL = timedelta(milliseconds=50)
_ELF_INTERPRETER = 3


async def build_own_images(busybox: Path) -> Mapping[str, bytes]:
    applets, binary = await read_applets(busybox), read_bytes(busybox)
    return {PAUSE_IMAGE: build_pause_image(), BUSYBOX_IMAGE: build_busybox_image(binary=binary, applets=applets)}


async def import_missing(
    images: Mapping[str, bytes], *, store: ImageService, ctr: str, address: str, scratch: Path, clock: Clock
) -> list[str]:
    """Give containerd the images that it does not have in this very form; returns their names.

    The directory `scratch` exists.
    """
    missing = {name: archive for name, archive in images.items() if await _id(store, name) != image_id(archive)}
    for name, archive in missing.items():
        file = scratch / "import.tar"
        write_atomic(file, archive)
        try:
            await import_image(file, address=address, ctr=ctr)
        finally:
            remove_file(file)
        await _until_visible(store, name, image_id(archive), clock)
    return list(missing)


def image_id(archive: bytes) -> str:
    """Return the id by which the CRI knows an image: the digest of its configuration."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.extractfile("manifest.json")
        assert member is not None, "klet's own archives have a manifest"
        (manifest,) = json.load(member)
    return f"sha256:{Path(manifest['Config']).name}"


def is_static_executable(program: bytes) -> bool:
    """Return whether an ELF file runs without a loader, as it must in an image that holds nothing else."""
    if program[:5] != b"\x7fELF\x02":
        return False
    table, size, count = (int.from_bytes(program[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2)))
    kinds = (int.from_bytes(program[at : at + 4], "little") for at in range(table, table + size * count, size or 1))
    return _ELF_INTERPRETER not in set(kinds)


async def _id(store: ImageService, name: str) -> str:
    answer = await store.image_status(pb.ImageStatusRequest(image=pb.ImageSpec(image=name)))
    return answer.image.id


async def _until_visible(store: ImageService, name: str, wanted: str, clock: Clock) -> None:
    began = clock.monotonic()
    while await _id(store, name) != wanted:
        if clock.monotonic() - began > VISIBLE_DEADLINE.total_seconds():
            raise NodeError(f"containerd took image {name} and does not show it after {VISIBLE_DEADLINE}")
        await clock.sleep(POLL)
