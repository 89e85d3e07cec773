"""The configuration of sandboxes and containers for the runtime."""
