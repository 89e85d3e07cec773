"""The versions klet reports: its own, and the Kubernetes release whose kubelet it stands in for."""

__version__ = "0.1.0"
KUBERNETES_VERSION = "v1.35.8"
KUBELET_VERSION = f"{KUBERNETES_VERSION}+klet.{__version__.rpartition('.')[0]}"
USER_AGENT = f"kubelet/{KUBELET_VERSION} (linux) klet/{__version__}"
"""How klet calls itself to an API server: as a kubelet, for whoever counts them, and by its name."""


def parse_release(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a Kubernetes version such as `v1.35.8` or `1.35.0`."""
    major, minor = version.removeprefix("v").split(".")[:2]
    return int(major), int(minor)
