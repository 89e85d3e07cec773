"""What the node, its pods and its containers use (upstream: stats provider, resource analyzer), and how it is shown."""
