"""Opens the credential provider plugins of the configuration."""

import os

from klet.aio.clock import Clock
from klet.app.ports import NodeObjects
from klet.app.settings import AgentSettings
from klet.host.plugin_programs import PluginPrograms
from klet.images.providers.logins import ProviderKeyring
from klet.images.providers.metrics import register_providers
from klet.images.providers.plugin import ProviderPlugin, ProviderPorts
from klet.images.sources import NoProviderLogins, ProviderLogins
from klet.metrics import MetricRegistry
from klet.model.causes import CauseRecorder


def open_provider_logins(
    settings: AgentSettings, objects: NodeObjects, *, recorder: CauseRecorder, registry: MetricRegistry, clock: Clock
) -> ProviderLogins:
    """Return what asks the plugins; their metrics exist only if there are some."""
    loaded = settings.credential_providers
    if loaded is None:
        return NoProviderLogins()
    providers = loaded.config.providers
    ports = ProviderPorts(
        runner=PluginPrograms(environment=os.environ),
        metrics=register_providers(registry, names=(each.name for each in providers), config_hash=loaded.hash),
        clock=clock,
    )
    directory = settings.credential_provider_programs
    return ProviderKeyring(
        plugins=[ProviderPlugin(provider=each, directory=directory, ports=ports) for each in providers],
        accounts=objects.accounts,
        tokens=objects.tokens,
        recorder=recorder,
    )
