"""The paths of the agent's HTTP API, one module for each family."""
