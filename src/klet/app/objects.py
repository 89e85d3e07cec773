"""The objects of an API server that pods use. A node without one has none; each part says so in upstream's words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from klet.model.roles import ObjectChanges, ObjectReader, ReferredObjects
from klet.objectcache.standalone import StandaloneObjects, StandaloneTokens
from klet.objectcache.trust_bundles import NoTrustBundles
from klet.runtime.environment.env_sources import NoObjects, ServiceReader
from klet.runtime.runtime_class import KnownRuntimeClasses, RuntimeClasses
from klet.volumes.plugins.shown import TokenReader, TrustReader


class TrustBundleReader(TrustReader, ObjectChanges, Protocol):
    """Root certificates for volumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObjects:
    """What pods and their volumes can refer to."""

    referred: ReferredObjects
    data: ObjectReader
    """The same, for the environment of containers."""
    tokens: TokenReader
    trust: TrustBundleReader
    services: ServiceReader
    runtime_classes: RuntimeClasses
    has_api: bool


def standalone_objects(runtime_handlers: Mapping[str, str]) -> NodeObjects:
    """Those of a node without an API server: nothing but the runtime classes of klet's own configuration."""
    nothing = NoObjects()
    return NodeObjects(
        referred=StandaloneObjects(),
        data=nothing,
        tokens=StandaloneTokens(),
        trust=NoTrustBundles(),
        services=nothing,
        runtime_classes=KnownRuntimeClasses(handlers=runtime_handlers),
        has_api=False,
    )
