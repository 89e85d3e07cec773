"""Two thousand hostile connections on the kubelet API, and what the node does meanwhile (python -m bench.hostile)."""
