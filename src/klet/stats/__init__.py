"""Statistics of the node and its pods: what they use of its disks (upstream: stats provider, resource analyzer)."""
