"""The logins of all credential providers for one pull (external credential provider keyring)."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from klet.aio.single_flight import SingleFlight
from klet.api.config import ServiceAccount
from klet.api.pod import Pod
from klet.config.credential_provider import ServiceAccountTokenAttributes
from klet.errors import KletError, level_for
from klet.images.keyring import Keyring
from klet.images.providers.accounts import PodAccount, account_token_request, choose_annotations
from klet.images.providers.plugin import ProviderFailed, ProviderPlugin
from klet.images.sources import ImagePullServiceAccount, NodeWide, SourcedLogin
from klet.model.causes import CauseRecorder
from klet.model.pods import uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import AccountTokens

logger = logging.getLogger(__name__)

DECIDER: Final = "images.providers"


class AccountReader(Protocol):
    """Gets service accounts; a failure is a KletError."""

    async def get(self, namespace: str, name: str) -> ServiceAccount: ...


class _Skipped(KletError):
    """A provider that is not asked for this pod, as its configuration says."""


class ProviderKeyring:
    """Asks every provider that is configured for an image, all at once. One that fails gives no logins."""

    def __init__(
        self,
        *,
        plugins: Sequence[ProviderPlugin],
        accounts: AccountReader,
        tokens: AccountTokens,
        recorder: CauseRecorder,
    ) -> None:
        self._plugins = tuple(plugins)
        self._accounts = accounts
        self._tokens = tokens
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._reading = SingleFlight[tuple[str, str], ServiceAccount]()

    async def find(self, pod: Pod, image: str, repository: str) -> tuple[SourcedLogin, ...]:
        """Return the logins for a repository: the more specific place first, then the order of the configuration."""
        del image  # providers are asked by the full name
        asked = [plugin for plugin in self._plugins if plugin.is_for(repository)]
        if not asked:
            return ()
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(self._ask(plugin, pod, repository)) for plugin in asked]
        return tuple(Keyring([answer.result() for answer in answers]).find(repository))

    async def _ask(self, plugin: ProviderPlugin, pod: Pod, repository: str) -> Mapping[str, SourcedLogin]:
        try:
            account = await self._account_for(plugin, pod)
            logins = await plugin.find(repository, account)
        except _Skipped as skipped:
            extra = {"pod": pod.metadata.name, "uid": uid_of(pod), "plugin": plugin.name, "reason": str(skipped)}
            logger.debug("Credential provider not asked", extra=extra)
            return {}
        except KletError as error:
            self._report(plugin, pod, error)
            return {}
        source = (
            NodeWide()
            if account is None
            else ImagePullServiceAccount(uid=account.uid, namespace=account.namespace, name=account.name)
        )
        return {place: SourcedLogin(login, source) for place, login in logins.items()}

    async def _account_for(self, plugin: ProviderPlugin, pod: Pod) -> PodAccount | None:
        """Return in whose name a provider is asked, None if it is the node's; raises _Skipped."""
        attributes = plugin.provider.token_attributes
        if attributes is None:
            return None
        if not pod.spec.service_account_name:
            if attributes.require_service_account:
                raise _Skipped("the pod has no service account")
            return None
        return await self._with_token(pod, attributes)

    async def _with_token(self, pod: Pod, attributes: ServiceAccountTokenAttributes) -> PodAccount:
        namespace, name = pod.metadata.namespace, pod.spec.service_account_name
        try:
            account = await self._reading.run((namespace, name), lambda: self._accounts.get(namespace, name))
        except KletError as error:
            raise ProviderFailed(f"failed to get service account: {error}") from error
        annotations = choose_annotations(account, attributes)
        if annotations is None:
            raise _Skipped("the service account lacks a required annotation")
        try:
            issued = await self._tokens.get(namespace, name, account_token_request(pod, account, attributes))
        except KletError as error:
            raise ProviderFailed(f"failed to get service account token: {error}") from error
        return PodAccount(
            namespace=namespace, name=name, uid=account.metadata.uid, annotations=annotations, token=issued.token
        )

    def _report(self, plugin: ProviderPlugin, pod: Pod, error: KletError) -> None:
        extra = {"pod": pod.metadata.name, "uid": uid_of(pod), "plugin": plugin.name, "error": str(error)}
        if isinstance(error, ProviderFailed) and error.said:
            extra["stderr"] = error.said
        logger.log(level_for(error), "Credential provider gave no logins", extra=extra)
        self._decisions.for_pod(pod).record(
            Reason.CREDENTIAL_PROVIDER_FAILED,
            f"credential provider {plugin.name} gave no logins: {error}",
            next_step="pull without its logins",
        )
