"""The versions klet reports: its own, and the Kubernetes release whose kubelet it stands in for."""

__version__ = "0.1.0"
KUBERNETES_VERSION = "v1.35.0"
KUBELET_VERSION = f"{KUBERNETES_VERSION}+klet.{__version__.rpartition('.')[0]}"
