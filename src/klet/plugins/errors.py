"""What can go wrong with the registration of a plugin."""

from klet.errors import KletError


class PluginError(KletError):
    """A plugin was not registered or not unregistered. Its text is upstream's."""
