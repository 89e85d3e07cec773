"""Plugins of the node: finds their registration sockets and registers them (upstream: the plugin manager)."""
