"""Compares what klet and upstream's kubelet report of the same pods: `/metrics*` and `/stats/summary`."""
