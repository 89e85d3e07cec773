"""The environment variables of containers."""
