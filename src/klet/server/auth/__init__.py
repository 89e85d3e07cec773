"""Authentication and authorization of the kubelet API."""
