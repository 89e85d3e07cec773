"""The agent's HTTP API."""
