"""Registries with basic and with token authentication, a proxy with faults, and images that are gone after the test."""

from random import SystemRandom

import pytest

from klet.testing.registry.faults import run_faulty_proxy
from klet.testing.registry.images import build_payload_image, push_image
from klet.testing.registry.process import run_registry_process
from klet.testing.registry.tokens import run_token_server
from klet.wire import cri_v1_pb2 as pb


@pytest.fixture
async def registry_process(tmp_path, registry_program):
    """A registry of one login that a test may kill."""
    (tmp_path / "registry").mkdir()
    async with run_registry_process(tmp_path / "registry", program=registry_program) as process:
        yield process


@pytest.fixture
async def tokens(tmp_path):
    async with run_token_server(tmp_path) as server:
        yield server


@pytest.fixture
async def token_registry(tmp_path, registry_program, tokens):
    """A registry that lets in who has a token of the token server."""
    (tmp_path / "token-registry").mkdir()
    directory = tmp_path / "token-registry"
    async with run_registry_process(directory, program=registry_program, tokens=tokens) as process:
        yield process.registry


@pytest.fixture
async def proxy(registry_process):
    """A proxy before the registry of one login; it has no faults yet."""
    async with run_faulty_proxy(registry_process.registry) as running:
        yield running


@pytest.fixture
async def push(cri):
    """Pushes an image with layers of random bytes; returns its name, and removes it from the node after the test."""
    names = []

    async def push(registry, repository="team/app", *, sizes=(1000,)):
        # Nothing of it may be on the node already, from another test.
        seed = SystemRandom().getrandbits(64)
        name = f"{registry.address}/{repository}:1"
        await push_image(registry, f"{repository}:1", build_payload_image(name=name, sizes=sizes, seed=seed))
        names.append(name)
        return name

    yield push
    for name in names:
        await cri.remove_image(pb.RemoveImageRequest(image=pb.ImageSpec(image=name)))
