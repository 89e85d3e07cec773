"""The volume plugins of this node. Most are built with the agent; drivers of flexVolume come and go."""

from collections.abc import Iterable, Iterator

from klet.volumes.plugins.base import VolumePlugin


class PluginBoard:
    """The plugins of now, by name. Written by `flex/probing.py` alone."""

    def __init__(self, plugins: Iterable[VolumePlugin]) -> None:
        self._plugins = {plugin.name: plugin for plugin in plugins}
        self._fixed = frozenset(self._plugins)

    def __iter__(self) -> Iterator[VolumePlugin]:
        return iter(tuple(self._plugins.values()))

    def is_fixed(self, name: str) -> bool:
        """Return whether a plugin of the agent itself has this name: no driver may take it."""
        return name in self._fixed

    def put(self, plugin: VolumePlugin) -> None:
        self._plugins[plugin.name] = plugin

    def drop(self, name: str) -> None:
        """Remove a plugin; one of the agent itself stays."""
        if name not in self._fixed:
            self._plugins.pop(name, None)
