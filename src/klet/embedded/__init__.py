"""The single node's own API server: an honest subset of the Kubernetes API on SQLite."""
