"""The first client certificate of a node, obtained before the agent starts (upstream's kubelet TLS bootstrap).

The key waits in a file of its own until its certificate is stored: an agent that was killed goes on with the same
key, and so with the same signing request, at the next start.
"""

import base64
import logging
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.aio.tasks import first_of
from klet.aio.threads import Threads
from klet.certs.errors import CertificateError, CertificateRefused, NotIssued, PairError, SigningFailed
from klet.certs.messages import CertificateFacts, KeyAndRequest, Template
from klet.certs.pairs import CertificatePair
from klet.certs.pem import key_block
from klet.certs.requests import CertificateRequester, Issued, Posted, RequestOutcome
from klet.certs.store import DIRECTORY_MODE, FILE_MODE, PairStore
from klet.host.errors import FileError
from klet.host.files import make_directories, read_text, remove_file, write_atomic
from klet.kube.access import Access, NoVerification, PemSource, SystemAuthorities
from klet.kube.credentials import CredentialSet
from klet.kube.errors import KubeconfigError, KubeError
from klet.kube.kubeconfig import load_kubeconfig
from klet.kube.transport import client_context

logger = logging.getLogger(__name__)

KEY_FILE: Final = "kubelet-client.key.tmp"
PATIENCE: Final = timedelta(hours=1)
SERVER_PATIENCE: Final = timedelta(minutes=1)
REMINDER: Final = timedelta(minutes=1)

_SERVER_PERIOD: Final = timedelta(seconds=2)
_SERVER_JITTER: Final = 0.2
_FIRST_DELAY: Final = timedelta(seconds=2)
_LONGEST_DELAY: Final = timedelta(seconds=32)
_DIRECTORY_MODE: Final = 0o755
_FILE_MODE: Final = 0o600


async def wait_for_server(
    check: Callable[[], Awaitable[str]],
    *,
    clock: Clock,
    randomness: random.Random,
    patience: timedelta = SERVER_PATIENCE,
) -> None:
    """Wait until the API server is well, or too long; `check` returns what is wrong with it, or nothing."""
    end = clock.now() + patience
    while problem := await check():
        if clock.now() >= end:
            logger.warning("The API server is not well; asking it all the same", extra={"error": problem})
            return
        logger.info("Waiting for the API server", extra={"error": problem})
        await clock.sleep(_SERVER_PERIOD * (1 + _SERVER_JITTER * randomness.random()))


class Bootstrap:
    """Obtains and stores the first pair."""

    def __init__(
        self,
        *,
        template: Template,
        store: PairStore,
        key_file: Path,
        requester: CertificateRequester,
        threads: Threads,
        clock: Clock,
    ) -> None:
        self._template = template
        self._store = store
        self._key_file = key_file
        self._requester = requester
        self._threads = threads
        self._clock = clock

    async def obtain(self) -> CertificatePair:
        """Return the pair, in force. Raises NotIssued, SigningFailed, PairError, and what the maker raises."""
        made = await self._make_request()
        certificate = await self._request(made)
        pair = await self._threads.run(self._store.update, certificate, made.key)
        try:
            await self._threads.run(remove_file, self._key_file)
        except FileError as error:
            logger.warning("The key of the bootstrap is left over", extra={"error": str(error)})
        return pair

    async def _make_request(self) -> KeyAndRequest:
        """Return a request with the key that is stored, with the one of an earlier start, or with a new one."""
        for read in (self._read_stored, self._read_left):
            if key := await self._threads.run(read):
                try:
                    return await self._requester.make(self._template, key=key)
                except CertificateRefused as error:
                    logger.warning("A key from before cannot be used", extra={"error": str(error)})
        made = await self._requester.make(self._template)
        await self._threads.run(self._keep, made.key)
        return made

    def _read_stored(self) -> str:
        try:
            return key_block(read_text(self._store.load().key_file))
        except (PairError, FileError):
            return ""  # whatever is wrong with it, a new pair takes its place

    def _read_left(self) -> str:
        try:
            return key_block(read_text(self._key_file))
        except FileError:
            return ""

    def _keep(self, key: str) -> None:
        try:
            make_directories(self._key_file.parent, mode=DIRECTORY_MODE)
            write_atomic(self._key_file, key.encode(), mode=FILE_MODE)
        except FileError as error:
            raise PairError(str(error)) from error
        except OSError as error:
            raise PairError(f"cannot make {self._key_file.parent}: {error.strerror}") from error

    async def _request(self, made: KeyAndRequest) -> str:
        found: list[RequestOutcome | CertificateError] = []

        async def ask() -> None:
            try:
                posted = await self._post(made)
                await first_of(self._follow(posted, found), self._remind(posted))
            except CertificateError as error:
                found.append(error)

        await first_of(ask(), self._clock.sleep(PATIENCE))
        if not found:
            raise NotIssued(f"no client certificate within {PATIENCE}; approve the node's request and start again")
        match found[0]:
            case CertificateError() as error:
                raise error
            case Issued(certificate=certificate):
                return certificate
            case ended:
                raise NotIssued(ended.reason)

    async def _post(self, made: KeyAndRequest) -> Posted:
        """Post the request; a server that is away is waited for, a refusal is final."""
        delays = exponential_delays(first=_FIRST_DELAY, longest=_LONGEST_DELAY)
        while True:
            try:
                return await self._requester.post_again(self._template, made, now=self._clock.now())
            except SigningFailed as error:
                if not error.may_pass:
                    raise
                logger.warning("The client certificate could not be requested yet", extra={"error": str(error)})
            await self._clock.sleep(next(delays))

    async def _follow(self, posted: Posted, found: list[RequestOutcome | CertificateError]) -> None:
        found.append(await self._requester.outcome(posted))

    async def _remind(self, posted: Posted) -> None:
        """Say again and again what is waited for: nothing else happens meanwhile."""
        while True:
            extra = {"request": posted.name, "next": f"kubectl certificate approve {posted.name}"}
            logger.info("Waiting for the client certificate to be issued", extra=extra)
            await self._clock.sleep(REMINDER)


class FactsReader(Protocol):
    """The part of the maker that is needed here."""

    async def describe(self, certificate: str) -> CertificateFacts: ...


def build_kubeconfig(access: Access, pair_file: Path) -> dict[str, Any]:
    """Return the server of the bootstrap with the node's own certificate. A proxy and a server name go along."""
    cluster: dict[str, Any] = {"server": access.server}
    match access.authority:
        case PemSource(path=None, data=data):
            cluster["certificate-authority-data"] = base64.b64encode(data).decode()
        case PemSource(path=path):
            cluster["certificate-authority"] = str(path)
        case NoVerification():
            cluster["insecure-skip-tls-verify"] = True
        case SystemAuthorities():
            pass
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    if access.proxy:
        cluster["proxy-url"] = access.proxy
    user = {"client-certificate": str(pair_file), "client-key": str(pair_file)}
    context = {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}
    return {
        "apiVersion": "v1",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "contexts": [{"name": "default-context", "context": context}],
        "current-context": "default-context",
        "kind": "Config",
        "users": [{"name": "default-auth", "user": user}],
    }


def write_kubeconfig(path: Path, config: dict[str, Any]) -> None:
    """Put a kubeconfig in place. Blocks; raises KubeconfigError."""
    try:
        make_directories(path.parent, mode=_DIRECTORY_MODE)
        write_atomic(path, yaml.safe_dump(config, sort_keys=True).encode(), mode=_FILE_MODE)
    except FileError as error:
        raise KubeconfigError(f"--kubeconfig: {error}") from error
    except OSError as error:
        raise KubeconfigError(f"--kubeconfig: cannot make {path.parent}: {error.strerror}") from error


async def find_flaw(path: Path, reader: FactsReader, *, now: datetime) -> str:
    """Return why a node cannot use a kubeconfig: it needs a valid client certificate. Empty if it can."""
    try:
        access = load_kubeconfig(path)
        if access.login.pair is None:
            return f"{path} has no client certificate"
        certificate, key = access.login.pair.read()
        client_context(access.authority, CredentialSet(certificate=certificate, key=key))
        facts = await reader.describe(certificate.decode("ascii", errors="replace"))
    except (KubeError, CertificateError, OSError) as error:
        return str(error)
    if now > facts.chain_not_after:
        return f"part of the existing client certificate in {path} is expired: {facts.chain_not_after}"
    return ""
