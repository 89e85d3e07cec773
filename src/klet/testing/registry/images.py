"""Images that a test makes and pushes by itself, over the HTTP API of the registry: no Docker takes part."""

import hashlib
import io
import json
import random
import tarfile
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import aiohttp
from yarl import URL

from klet.errors import KletError
from klet.host.images import ImageConfig, build_image, file
from klet.testing.registry.process import ImageRegistry

PAYLOAD: Final = "payload"
MANIFEST_KINDS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


class PushFailed(KletError):
    """The registry did not take a blob or a manifest."""


def build_payload_image(*, name: str, sizes: Sequence[int], seed: int = 0) -> bytes:
    """Return an image with a layer of each of these sizes; no byte of it can be compressed or guessed.

    Another seed gives other layers.
    """
    chance = random.Random(seed)  # the same bytes each time
    layers = [[file(f"{PAYLOAD}-{index}", chance.randbytes(size))] for index, size in enumerate(sizes)]
    return build_image(name=name, layers=layers, config=ImageConfig(command=("/none",)))


async def push_image(registry: ImageRegistry, name: str, archive: bytes) -> str:
    """Push an image archive as `<repository>:<tag>`; return the digest of its manifest. Raises PushFailed."""
    repository, _, tag = name.rpartition(":")
    blobs = _read_archive(archive)
    [listed] = json.loads(blobs["index.json"])["manifests"]
    manifest = blobs[_path(listed["digest"])]
    headers = {"Authorization": registry.authorize(repository)}
    base = URL(f"http://{registry.address}/v2/{repository}")
    read = json.loads(manifest)
    async with aiohttp.ClientSession(headers=headers) as session:
        for blob in (read["config"], *read["layers"]):
            await _push_blob(session, base, blob["digest"], blobs[_path(blob["digest"])])
        kind = {"Content-Type": listed["mediaType"]}
        async with session.put(base / "manifests" / tag, data=manifest, headers=kind) as answer:
            await _check(answer, HTTPStatus.CREATED)
    return str(listed["digest"])


async def _push_blob(session: aiohttp.ClientSession, base: URL, digest: str, data: bytes) -> None:
    assert digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    async with session.head(base / "blobs" / digest) as known:
        if known.status == HTTPStatus.OK:
            return
    async with session.post(f"{base}/blobs/uploads/") as opened:
        await _check(opened, HTTPStatus.ACCEPTED)
        place = URL(opened.headers["Location"]).update_query(digest=digest)
    kind = {"Content-Type": "application/octet-stream"}
    async with session.put(place, data=io.BytesIO(data), headers=kind) as answer:
        await _check(answer, HTTPStatus.CREATED)


async def _check(answer: aiohttp.ClientResponse, expected: HTTPStatus) -> None:
    if answer.status != expected:
        text = (await answer.text())[:500]
        raise PushFailed(f"{answer.method} {answer.url.path} was answered with {answer.status}: {text}")


def _read_archive(archive: bytes) -> Mapping[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return {member.name: source.read() for member in files if (source := files.extractfile(member)) is not None}


def _path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
