"""klet: a complete kubelet in Python, and a one-command single node."""
