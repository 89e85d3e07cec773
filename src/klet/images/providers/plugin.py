"""One credential provider: whom it is asked for, how its program is run, and how long its answers are kept."""

import logging
import signal
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.single_flight import SingleFlight
from klet.config.credential_provider import SERVICE_ACCOUNT_CACHE, CredentialProvider
from klet.errors import KletError
from klet.host.errors import ProcessError, ProcessTimeout
from klet.host.files import is_plain_name
from klet.host.processes import Completed
from klet.images.keyring import matches, place_of
from klet.images.providers.accounts import AccountKey, PodAccount, account_key
from klet.images.providers.cache import AnswerCache, Logins
from klet.images.providers.messages import ProviderAnswer, ProviderRequest, decode_response, encode_request
from klet.images.providers.metrics import ProviderMetrics
from klet.model.foreign_text import LONGEST_WORD, as_terminal_text, read_output

logger = logging.getLogger(__name__)

TIME_LIMIT: Final = timedelta(minutes=1)
LONGEST_ANSWER: Final = 256 << 10
"""Bytes; the logins of a hundred registries need a tenth."""


class ProviderFailed(KletError):
    """A provider gave no logins. The message holds nothing of its answer."""

    def __init__(self, message: str, *, said: str = "") -> None:
        super().__init__(message)
        self.said = said
        """What it printed to its standard error, without the token that it was given."""


class PluginRunner(Protocol):
    """Runs programs of the machine."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes, env: Mapping[str, str], timeout: timedelta, output_limit: int
    ) -> Completed:
        """Run one, with the environment of the agent and this one over it; raises ProcessError."""
        ...


class ProviderPorts(Struct, frozen=True, kw_only=True):
    """What every provider needs."""

    runner: PluginRunner
    metrics: ProviderMetrics
    clock: Clock


class ProviderPlugin:
    """Asks one provider. The same question is asked once at a time."""

    def __init__(self, *, provider: CredentialProvider, directory: Path, ports: ProviderPorts) -> None:
        self.provider = provider
        self._program = directory / provider.name
        self._ports = ports
        self._cache = AnswerCache()
        self._asking = SingleFlight[tuple[str, AccountKey | None], Logins]()
        places = map(place_of, provider.match_images)
        self._places = tuple(place for place in places if place is not None)

    @property
    def name(self) -> str:
        return self.provider.name

    def is_for(self, repository: str) -> bool:
        """Return whether an image of a repository is one that the provider is configured for."""
        return any(matches(place, repository) for place in self._places)

    async def find(self, repository: str, account: PodAccount | None) -> Logins:
        """Return the provider's logins, in the name of an account if there is one; raises ProviderFailed."""
        key = account_key(account, self.provider.token_attributes)
        kept = self._cache.get(repository, key, now=self._ports.clock.monotonic())
        if kept is not None:
            return kept
        return await self._asking.run((repository, key), lambda: self._ask(repository, account, key))

    async def _ask(self, repository: str, account: PodAccount | None, key: AccountKey | None) -> Logins:
        output = await self._run(repository, account)
        try:
            answer = decode_response(output, api_version=self.provider.api_version)
        except KletError as error:
            raise ProviderFailed(str(error)) from error
        if account is not None and self._repeats_token(answer, account.token):
            raise ProviderFailed(
                f"credential provider plugin {self.name} returned the service account token as the password for image "
                f"{repository}, which is not allowed when the cacheType of its tokenAttributes is not Token"
            )
        good_for = answer.cache_duration if answer.cache_duration is not None else self.provider.default_cache_duration
        self._cache.put(
            answer.logins,
            kind=answer.cache_key_type,
            repository=repository,
            account=key,
            good_for=good_for or timedelta(),
            now=self._ports.clock.monotonic(),
        )
        return answer.logins

    async def _run(self, repository: str, account: PodAccount | None) -> bytes:
        """Return what the program prints to its standard output."""
        token = account.token if account is not None else ""
        request = ProviderRequest(
            image=repository, token=token, annotations=account.annotations if account is not None else {}
        )
        failed = f"error execing credential provider plugin {self.name} for image {repository}"
        metrics, clock = self._ports.metrics, self._ports.clock
        started = clock.monotonic()
        try:
            # The configuration is checked before the agent starts; a name that leads elsewhere is never run.
            if not is_plain_name(self.name):
                raise ProviderFailed(f"{failed}: its name is not that of a file in the directory of plugins")
            done = await self._ports.runner.run(
                [str(self._program), *self.provider.args],
                stdin=encode_request(request, api_version=self.provider.api_version),
                env={each.name: each.value for each in self.provider.env},
                timeout=TIME_LIMIT,
                output_limit=LONGEST_ANSWER,
            )
            _check_end(done, failed, token=token)
        except ProcessTimeout as error:
            metrics.errors.add(self.name)
            raise ProviderFailed(f"{failed}: context deadline exceeded: no answer within 1m") from error
        except ProcessError as error:
            metrics.errors.add(self.name)
            why = error.__cause__.strerror if isinstance(error.__cause__, OSError) else "it cannot be started"
            raise ProviderFailed(f"{failed}: {why}") from error
        except ProviderFailed:
            metrics.errors.add(self.name)
            raise
        finally:
            metrics.durations.observe(clock.monotonic() - started, self.name)
        return done.stdout

    def _repeats_token(self, answer: ProviderAnswer, token: str) -> bool:
        """Return whether an answer that is kept for other tokens holds this one: it is bound to one pod."""
        attributes = self.provider.token_attributes
        if attributes is None or attributes.cache_type != SERVICE_ACCOUNT_CACHE:
            return False
        return any(login.password == token for login in answer.logins.values())


def _check_end(done: Completed, failed: str, *, token: str) -> None:
    if done.returncode != 0:
        how = f"exit status {done.returncode}" if done.returncode > 0 else f"signal: {_signal_name(-done.returncode)}"
        raise ProviderFailed(f"{failed}: {how}", said=_printable(done.stderr, token))
    if len(done.stdout) >= LONGEST_ANSWER:
        raise ProviderFailed(f"{failed}: its answer is longer than {LONGEST_ANSWER} bytes")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _printable(stderr: bytes, token: str) -> str:
    text = stderr.decode("utf-8", "replace")
    if token:
        text = text.replace(token, "<token>")
    return as_terminal_text(" ".join(read_output(text.encode(), limit=LONGEST_WORD).split()))
