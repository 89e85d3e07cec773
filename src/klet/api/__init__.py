"""The Kubernetes objects a kubelet handles, as immutable values, and the pure rules about them."""
