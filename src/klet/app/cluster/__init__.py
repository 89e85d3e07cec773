"""The parts of the agent that need an API server."""
