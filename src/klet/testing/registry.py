"""A registry of images for tests: Debian's docker-registry on the loopback, which lets in only who has a login."""

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp
from msgspec import Struct

from klet.aio.clock import Clock, SystemClock
from klet.errors import KletError
from klet.testing.debian_packages import PackagesMissing, alone, find_cache, unpack_packages
from klet.testing.free_ports import find_free_ports

USER: Final = "user"
PASSWORD: Final = "right-pass"  # noqa: S105 - of nothing but the registry that a test starts
# By bcrypt, as `htpasswd -B` writes it: the registry knows no other kind.
_HASH: Final = "$2b$04$abcdefghijklmnopqrstuuMAVYJKbzxmzbNJS5pCFkr7WlaWBgtEC"
_PACKAGE: Final = "docker-registry"
_START_LIMIT: Final = timedelta(seconds=20)
_POLL: Final = timedelta(milliseconds=20)


class RegistryFailed(KletError):
    """The registry did not come up."""


class ImageRegistry(Struct, frozen=True):
    """One that runs. Runtimes speak plain HTTP with it, since it is on the loopback."""

    address: str

    def docker_config(self, *, password: str = PASSWORD) -> bytes:
        """Return the login for it, as Docker keeps one."""
        return json.dumps({"auths": {self.address: {"username": USER, "password": password}}}).encode()


def find_registry(cache: Path | None = None) -> Path:
    """Return the program, fetched if it is not there yet; raises PackagesMissing."""
    base = cache or find_cache()
    root = base / _PACKAGE
    program = root / "usr/bin" / _PACKAGE
    if not program.exists():
        base.mkdir(parents=True, exist_ok=True)
        with alone(base / "lock"):
            if not program.exists():
                unpack_packages(root, _PACKAGE, with_needs=False)
    if not program.exists():
        raise PackagesMissing(f"the package {_PACKAGE} holds no {program.name}")
    return program


@asynccontextmanager
async def run_registry(directory: Path, *, program: Path, clock: Clock | None = None) -> AsyncIterator[ImageRegistry]:
    """Run a registry without any image, with everything it keeps in a directory."""
    [port] = find_free_ports(1)
    registry = ImageRegistry(f"127.0.0.1:{port}")
    process = _start(directory, program, registry.address)
    try:
        await _until_it_answers(registry.address, process, clock=clock or SystemClock())
        yield registry
    finally:
        process.terminate()
        process.wait()


def _start(directory: Path, program: Path, address: str) -> "subprocess.Popen[bytes]":
    passwords, config = directory / "htpasswd", directory / "config.yml"
    passwords.write_text(f"{USER}:{_HASH}\n")
    settings = {
        "version": 0.1,
        "log": {"accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(directory / "images")}},
        "http": {"addr": address},
        "auth": {"htpasswd": {"realm": "klet", "path": str(passwords)}},
    }
    config.write_text(json.dumps(settings))  # which is YAML as well
    with (directory / "registry.log").open("ab") as output:
        return subprocess.Popen(
            [str(program), "serve", str(config)],
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


async def _until_it_answers(address: str, process: "subprocess.Popen[bytes]", *, clock: Clock) -> None:
    give_up = clock.now() + _START_LIMIT
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://{address}/v2/") as answer:
                    assert answer.status == HTTPStatus.UNAUTHORIZED  # a pull without a login is refused
                    return
            except aiohttp.ClientConnectionError:
                if process.poll() is not None or clock.now() > give_up:
                    raise RegistryFailed("the registry did not start: its registry.log says why") from None
                await clock.sleep(_POLL)
