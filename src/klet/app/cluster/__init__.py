"""What the parts of the agent ask of an API server, carried out by the client."""
