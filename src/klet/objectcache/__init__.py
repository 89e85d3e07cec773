"""Objects of the API server that pods use: config maps, secrets, service account tokens."""
