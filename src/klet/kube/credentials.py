"""What the agent shows to the API server now: a token or a client certificate that may change at any time.

Token files are read again when they have changed; a credential plugin is run again when its answer runs out or was not
accepted (client-go's exec authenticator).
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from klet.aio.clock import Clock
from klet.api.base import ApiObject
from klet.api.codec import DecodeError, decode, encode
from klet.api.times import Time
from klet.kube.access import ExecPlugin, KeyPair, Login
from klet.kube.certificate_times import ValidityTimes, read_validity
from klet.kube.credential_plugin import run_plugin
from klet.kube.errors import CredentialError, CredentialPluginError
from klet.kube.metrics import CredentialPluginCall, CredentialPluginMetrics
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.hidden_fields import HidesFields

logger = logging.getLogger(__name__)

TOKEN_FILE_AGE: Final = timedelta(seconds=10)
"""How long a token that was read from a file is shown without looking at the file again."""
PAIR_PATIENCE: Final = timedelta(seconds=8)
"""How long a request waits for a client certificate whose file is not there."""
PLUGIN_TIMEOUT: Final = timedelta(seconds=60)
_LOOK: Final = timedelta(milliseconds=100)


class CredentialSet(HidesFields, frozen=True):
    """One set of credentials: a bearer token, a certificate with its key, or both."""

    HIDDEN = frozenset({"token", "certificate", "key"})

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""


class Credentials:
    """Keeps the newest credentials of one login."""

    def __init__(self, *, login: Login, clock: Clock, plugins: CredentialPluginMetrics | None = None) -> None:
        self._login = login
        self._clock = clock
        self._pair: tuple[tuple[object, ...], tuple[bytes, bytes]] | None = None
        """The client certificate and its key as they were last read, and the stamp of their files then."""
        self._token = _TokenFile(login.token_file, clock) if login.token_file is not None else None
        self._plugin = _Plugin(login.plugin, clock, plugins) if login.plugin is not None else None

    async def current(self) -> CredentialSet:
        """Return the credentials to use now; raises CredentialError."""
        shown = CredentialSet(token=self._login.token)
        if self._token is not None:
            # A token beside its file is what to use while the file cannot be read.
            shown = CredentialSet(token=self._token.read(otherwise=self._login.token))
        if self._plugin is not None:
            shown = await self._plugin.answer()
        if self._login.pair is None:
            return shown
        certificate, key = await self._read_pair(self._login.pair)
        return CredentialSet(token=shown.token, certificate=certificate, key=key)

    async def _read_pair(self, pair: KeyPair) -> tuple[bytes, bytes]:
        """Read the pair. A node that joins gets its certificate soon: a request waits a little for it."""
        give_up = self._clock.monotonic() + PAIR_PATIENCE.total_seconds()
        while True:
            try:
                # A request costs little more than this: the files are read again only if they may have changed.
                stamp = pair.stamp()
                if self._pair is None or self._pair[0] != stamp:
                    self._pair = (stamp, pair.read())
                return self._pair[1]
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or self._clock.monotonic() >= give_up:
                    raise CredentialError(f"client certificate not read: {error}") from error
            await self._clock.sleep(_LOOK)

    def refuse(self) -> None:
        """Drop credentials that the server does not accept: get fresh ones next time."""
        if self._token is not None:
            self._token.forget()
        if self._plugin is not None:
            self._plugin.forget()


class _TokenFile:
    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._read_at: float | None = None

    def read(self, *, otherwise: str) -> str:
        now = self._clock.monotonic()
        if self._read_at is not None and now - self._read_at < TOKEN_FILE_AGE.total_seconds():
            return self._token
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._token or otherwise:
                logger.warning("Token file not read; the last token stays", extra={"error": str(error)})
                return self._token or otherwise
            raise CredentialError(f"token file not read: {error}") from error
        if not token:
            raise CredentialError(f"token file {self._path} is empty")
        self._token, self._read_at = token, now
        return token

    def forget(self) -> None:
        self._read_at = None


class _CredentialStatus(ApiObject, frozen=True, kw_only=True):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Time | None = None


class _ExecCredential(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    status: _CredentialStatus | None = None


class _Plugin:
    def __init__(self, plugin: ExecPlugin, clock: Clock, metrics: CredentialPluginMetrics | None) -> None:
        self._plugin = plugin
        self._clock = clock
        self._metrics = metrics
        self._certificate = b""
        """The newest, also after it was refused."""
        self._validity: ValidityTimes | None = None
        self._answer: CredentialSet | None = None
        self._until: datetime | None = None
        self._turn = asyncio.Lock()

    async def answer(self) -> CredentialSet:
        # The lock keeps many requests from starting the program many times; no board is behind it.
        async with self._turn:
            if self._answer is None or (self._until is not None and self._clock.now() >= self._until):
                status = await self._run()
                self._until = status.expiration_timestamp
                self._answer = CredentialSet(
                    token=status.token,
                    certificate=status.client_certificate_data.encode(),
                    key=status.client_key_data.encode(),
                )
                self._note_certificate(self._answer.certificate)
            return self._answer

    def forget(self) -> None:
        self._answer = None

    async def _run(self) -> _CredentialStatus:
        plugin = self._plugin
        spec: dict[str, object] = {"interactive": False}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {"KUBERNETES_EXEC_INFO": encode(info).decode()}
        output = await self._call(environment)
        try:
            credential = decode(_ExecCredential, output)
        except (DecodeError, msgspec.MsgspecError) as error:
            raise CredentialError(f"credential plugin {plugin.command}: its answer: {error}") from error
        if (credential.api_version, credential.kind) != (plugin.api_version, "ExecCredential"):
            got = shorten(f"{credential.api_version} {credential.kind}", LONGEST_WORD)
            message = (
                f"credential plugin {plugin.command}: answered with {got}, not {plugin.api_version} ExecCredential"
            )
            raise CredentialError(message)
        status = credential.status or _CredentialStatus()
        has_pair = bool(status.client_certificate_data), bool(status.client_key_data)
        if has_pair[0] != has_pair[1] or not (status.token or all(has_pair)):
            message = (
                f"credential plugin {plugin.command}: its answer has neither a token nor a certificate with its key"
            )
            raise CredentialError(message)
        return status

    async def _call(self, environment: Mapping[str, str]) -> bytes:
        try:
            output = await run_plugin(self._plugin, environment, timeout=PLUGIN_TIMEOUT)
        except CredentialPluginError as error:
            if self._metrics is not None:
                self._metrics.note_call(error.call, error.code)
            raise
        if self._metrics is not None:
            self._metrics.note_call(CredentialPluginCall.NO_ERROR, 0)
        return output

    def _note_certificate(self, certificate: bytes) -> None:
        if self._metrics is None or certificate == self._certificate:
            return
        if self._validity is not None:
            self._metrics.note_replaced(began_at=self._validity.begins_at)
        self._certificate = certificate
        self._validity = read_validity(certificate.decode())
        self._metrics.note_certificate(ends_at=self._validity.ends_at if self._validity is not None else None)
