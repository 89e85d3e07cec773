"""Metrics of credential providers, with upstream's names."""

from collections.abc import Iterable

from msgspec import Struct

from klet.metrics import DEFAULT_BOUNDS, Counter, Histogram, Label, MetricRegistry


class ProviderMetrics(Struct, frozen=True, kw_only=True):
    """Runs of plugins."""

    errors: Counter
    durations: Histogram


def register_providers(registry: MetricRegistry, *, names: Iterable[str], config_hash: str) -> ProviderMetrics:
    """Register them for the plugins of a configuration, whose hash is shown too."""
    name = Label("plugin_name", frozenset(names))
    registry.gauge(
        "kubelet_credential_provider_config_info",
        "The hash of the configuration of credential providers.",
        (Label("hash", frozenset({config_hash})),),
    ).set(1, config_hash)
    return ProviderMetrics(
        errors=registry.counter(
            "kubelet_credential_provider_plugin_errors_total",
            "Runs of credential provider plugins that failed.",
            (name,),
        ),
        durations=registry.histogram(
            "kubelet_credential_provider_plugin_duration",
            "How long credential provider plugins ran, in seconds.",
            DEFAULT_BOUNDS,
            (name,),
        ),
    )
