"""The metric of the plugin manager."""

from klet.metrics import Label, MetricRegistry, ObjectName, Reading
from klet.plugins.boards import DesiredPlugins, RegisteredPlugins

_ACTUAL = "actual_state_of_world"
_DESIRED = "desired_state_of_world"


def register_plugins(registry: MetricRegistry, desired: DesiredPlugins, registered: RegisteredPlugins) -> None:
    """Register upstream's gauge. Its series come and go with the sockets, of which there is a bounded number."""

    def count() -> Reading:
        return {
            **{(socket, _ACTUAL): 1.0 for socket in registered.all()},
            **{(socket, _DESIRED): 1.0 for socket in desired.all()},
        }

    registry.computed(
        "plugin_manager_total_plugins",
        "Plugins of the plugin manager: sockets that were found, and plugins that are registered.",
        count,
        (ObjectName("socket_path"), Label("state", frozenset({_ACTUAL, _DESIRED}))),
    )
