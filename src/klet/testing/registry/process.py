"""Debian's docker-registry as a process on the loopback, which lets in only who has a login or a token."""

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
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
from klet.testing.registry.tokens import PASSWORD, USER, TokenServer, basic

# By bcrypt, as `htpasswd -B` writes it: the registry knows no other kind.
_HASH: Final = "$2b$04$abcdefghijklmnopqrstuuMAVYJKbzxmzbNJS5pCFkr7WlaWBgtEC"
_PACKAGE: Final = "docker-registry"
_START_LIMIT: Final = timedelta(seconds=60)
_POLL: Final = timedelta(milliseconds=20)


class RegistryFailed(KletError):
    """The registry did not come up."""


class ImageRegistry(Struct, frozen=True):
    """Where one is. Runtimes speak plain HTTP with it, since it is on the loopback."""

    address: str
    authorize: Callable[[str], str] = lambda _: basic(USER, PASSWORD)
    """Returns the header `Authorization` that may push to a repository."""

    def docker_config(self, *, user: str = USER, password: str = PASSWORD) -> bytes:
        """Return the login for it, as Docker keeps one."""
        return json.dumps({"auths": {self.address: {"username": user, "password": password}}}).encode()


class RegistryProcess:
    """One that can be killed, and started again at the same address with the images that it had."""

    def __init__(self, *, directory: Path, program: Path, tokens: TokenServer | None, clock: Clock) -> None:
        [port] = find_free_ports(1)
        address = f"127.0.0.1:{port}"
        self.registry = ImageRegistry(address) if tokens is None else ImageRegistry(address, tokens.authorize)
        self._directory = directory
        self._program = program
        self._auth = _htpasswd(directory) if tokens is None else tokens.registry_settings()
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it and wait until it answers; raises RegistryFailed."""
        settings = {
            "version": 0.1,
            "log": {"accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self._directory / "images")}, "delete": {"enabled": True}},
            "http": {"addr": self.registry.address, "secret": "klet"},
            "auth": self._auth,
        }
        config = self._directory / "config.yml"
        config.write_text(json.dumps(settings))  # which is YAML as well
        self._process = _spawn(self._program, config, log=self._directory / "registry.log")
        await self._until_it_answers(self._process)

    def kill(self) -> None:
        """End it at once; nothing happens if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def _until_it_answers(self, process: "subprocess.Popen[bytes]") -> None:
        give_up = self._clock.now() + _START_LIMIT
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"http://{self.registry.address}/v2/") as answer:
                        assert answer.status == HTTPStatus.UNAUTHORIZED  # a pull without a login is refused
                        return
                except aiohttp.ClientConnectionError:
                    if process.poll() is not None or self._clock.now() > give_up:
                        raise RegistryFailed("the registry did not start: its registry.log says why") from None
                    await self._clock.sleep(_POLL)


def find_registry(cache: Path | None = None) -> Path:
    """Return the program: the installed one, or else one that is fetched once; raises PackagesMissing."""
    if cache is None and (installed := shutil.which(_PACKAGE)):
        return Path(installed)
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
async def run_registry_process(
    directory: Path, *, program: Path, tokens: TokenServer | None = None, clock: Clock | None = None
) -> AsyncIterator[RegistryProcess]:
    """Run a registry without any image, with everything it keeps in a directory.

    With a token server it lets in who has a token of that, otherwise who logs in as `USER` with `PASSWORD`.
    """
    process = RegistryProcess(directory=directory, program=program, tokens=tokens, clock=clock or SystemClock())
    try:
        await process.start()
        yield process
    finally:
        process.kill()


@asynccontextmanager
async def run_registry(directory: Path, *, program: Path, clock: Clock | None = None) -> AsyncIterator[ImageRegistry]:
    """Run a registry that lets in who logs in as `USER` with `PASSWORD`."""
    async with run_registry_process(directory, program=program, clock=clock) as process:
        yield process.registry


def _spawn(program: Path, config: Path, *, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(program), "serve", str(config)],
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def _htpasswd(directory: Path) -> Mapping[str, Mapping[str, str]]:
    passwords = directory / "htpasswd"
    passwords.write_text(f"{USER}:{_HASH}\n")
    return {"htpasswd": {"realm": "klet", "path": str(passwords)}}
