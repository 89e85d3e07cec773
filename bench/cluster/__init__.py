"""klet beside the upstream kubelet, through the real API server (python -m bench.cluster)."""
