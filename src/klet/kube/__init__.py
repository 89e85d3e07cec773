"""The Kubernetes API, as a port: kubeconfig, client, watches and informers."""
