"""What to do with a pod's sandbox and containers, and doing it (kuberuntime)."""
