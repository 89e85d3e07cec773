"""The registry logins of the node itself, in the files where Docker keeps them (DockerConfigProvider)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeAlias

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.errors import FileMissing
from klet.host.files import read_bytes
from klet.images.docker_config import RegistryLogin, parse_docker_config_json, parse_dockercfg

logger = logging.getLogger(__name__)

KEPT_FOR: Final = timedelta(minutes=5)

Logins: TypeAlias = Mapping[str, RegistryLogin]


class NodeLoginFiles:
    """The first file that can be read counts; it is looked at again after a while."""

    def __init__(self, *, root: Path, home: Path | None, threads: Threads, clock: Clock) -> None:
        self._files = find_login_files(root, home)
        self._threads = threads
        self._clock = clock
        self._logins: Logins = {}
        self._read_at: float | None = None

    async def read(self) -> Logins:
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= KEPT_FOR.total_seconds():
            self._logins = await self._threads.run(read_first, self._files)
            self._read_at = now
        return self._logins


class NoNodeLogins:
    """A node that logs in nowhere."""

    async def read(self) -> Logins:
        return {}


LoginFiles: TypeAlias = Sequence[tuple[Path, Callable[[bytes], Logins]]]


def find_login_files(root: Path, home: Path | None) -> LoginFiles:
    """Return where logins may be: in the agent's root directory, the working directory, at home, at the top."""
    top, here = Path("/"), Path()
    homes = () if home is None else (home,)
    new = [root, here, *(each / ".docker" for each in homes), top / ".docker"]
    return (
        *((directory / "config.json", parse_docker_config_json) for directory in new),
        *((directory / ".dockercfg", parse_dockercfg) for directory in (root, here, *homes, top)),
    )


def _log(path: Path, error: KletError) -> None:
    logger.warning("Registry logins cannot be read", extra={"path": str(path), "error": str(error)})


def read_first(files: LoginFiles, *, report: Callable[[Path, KletError], None] = _log) -> Logins:
    """Return the logins of the first file that is one; report those that cannot be read. It blocks."""
    for path, parse in files:
        try:
            return parse(read_bytes(path))
        except FileMissing:
            continue
        except KletError as error:
            report(path, error)
    return {}
