"""What to do for the sockets that there are and the plugins that are registered (upstream: `reconcile`). Pure."""

from collections.abc import Mapping

from msgspec import Struct

from klet.plugins.boards import DesiredPlugin, RegisteredPlugin


class RegistryPlan(Struct, frozen=True):
    """What to do now. What must wait for it is in a later plan."""

    unregister: tuple[RegisteredPlugin, ...] = ()
    register: tuple[DesiredPlugin, ...] = ()


def plan_registry(desired: Mapping[str, DesiredPlugin], registered: Mapping[str, RegisteredPlugin]) -> RegistryPlan:
    """Return which plugins have gone and which have come. One that came again is unregistered first."""
    gone = tuple(plugin for plugin in registered.values() if not _is_current(desired.get(plugin.socket), plugin))
    new = tuple(plugin for plugin in desired.values() if plugin.socket not in registered)
    return RegistryPlan(unregister=gone, register=new)


def _is_current(desired: DesiredPlugin | None, registered: RegisteredPlugin) -> bool:
    return desired is not None and desired.identity == registered.identity
