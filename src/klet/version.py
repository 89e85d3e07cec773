"""The versions klet reports: its own, and the Kubernetes release whose kubelet it replaces."""

__version__ = "0.1.0"
KUBERNETES_VERSION = "v1.35.8"
KUBELET_VERSION = f"{KUBERNETES_VERSION}+klet.{__version__.rpartition('.')[0]}"
USER_AGENT = f"kubelet/{KUBELET_VERSION} (linux) klet/{__version__}"
"""The User-Agent of requests to an API server: first `kubelet/…`, so that statistics count it as one, then `klet/…`."""


def parse_release(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a Kubernetes version such as `v1.35.8` or `1.35.0`."""
    major, minor = version.removeprefix("v").split(".")[:2]
    return int(major), int(minor)
