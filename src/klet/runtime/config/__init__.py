"""What the runtime is asked for: the configuration of sandboxes and containers."""
